package io.github.haul.client.internal.machine;

/** A step that is due from the other side, where nothing else can go on. */
public enum Awaited {
    /** An offer, or the end of the offers. */
    OFFER,
    /** An answer to an offer. */
    ANSWER,
    /** A confirmation of a file whose spans are all verified. */
    CONFIRMATION,
    /** The end of a data stream that was given up. */
    STREAM_END,
    /** The settlement of a file: it is to be durable under its name. */
    SETTLEMENT,
    /** The goodbye: all else is done. */
    GOODBYE
}
