package io.github.haul.client.internal.machine;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.Finish;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Plays a session of the receiver. */
final class ReceiverReplay extends Replay {
    private final Receiver receiver;
    private final List<ByteString> names = new ArrayList<>();

    ReceiverReplay(JsonNode trace) {
        receiver =
                new Receiver(
                        trace.get("offers_max").intValue(),
                        trace.get("offer_bytes_max").longValue(),
                        TargetPath.valueOf(constant(trace.get("path"))),
                        Repeats.valueOf(constant(trace.get("repeats"))));
        trace.get("names").forEach(name -> names.add(bytes(name)));
    }

    private static String constant(JsonNode name) {
        return name.textValue().toUpperCase(Locale.ROOT);
    }

    @Override
    @Nullable JsonNode call(String name, JsonNode step) throws ProtocolViolation {
        switch (name) {
            case "answer" -> receiver.answer(integer(step, "file"), answer(step.get("answer")));
            case "stream_opened" -> receiver.streamOpened(integer(step, "stream"));
            case "stream_closed" -> receiver.streamClosed(integer(step, "stream"));
            case "open_and_close" -> openAndClose(integer(step, "first"), integer(step, "count"));
            case "pack_starts" ->
                    receiver.packStarts(integer(step, "stream"), (Frames.Pack) header(step));
            case "span_starts" -> {
                return permit(
                        receiver.spanStarts(integer(step, "stream"), (Frames.Span) header(step)));
            }
            case "span_ended" ->
                    receiver.spanEnded(
                            integer(step, "stream"),
                            integer(step, "file"),
                            integer(step, "span"),
                            SpanEnd.valueOf(constant(step.get("end"))));
            case "read_back" ->
                    receiver.readBack(
                            integer(step, "file"), set(step.get("file_spans"), step.get("lost")));
            case "file_failed" ->
                    receiver.fileFailed(integer(step, "file"), Objects.requireNonNull(fault(step)));
            case "committed" -> receiver.committed(integer(step, "file"), fault(step));
            case "progress" -> receiver.progress(message(step.get("message")).getProgress());
            case "removed" ->
                    receiver.removed(message(step.get("message")).getRemoved().getNamesList());
            case "notice" -> receiver.notice(message(step.get("message")).getNotice());
            case "finish" -> receiver.finish(message(step.get("message")).getFinish().getReport());
            case "handle" -> receiver.handle(message(step.get("message")));
            default -> throw new IllegalArgumentException(name);
        }
        return null;
    }

    private static Frames.Header header(JsonNode step) throws ProtocolViolation {
        return Frames.Header.decode(bytes(step.get("header")).toByteArray());
    }

    private static JsonNode permit(int span) {
        return span == Receiver.DISCARD ? text("discard") : named("write", number(span));
    }

    private static OfferAnswer answer(JsonNode answer) throws ProtocolViolation {
        if (answer.isTextual()) {
            FileAnswer said = message(answer).getFileAnswer();
            return switch (said.getAnswerCase()) {
                case SKIP -> new OfferAnswer.Skipped();
                case FAULT -> new OfferAnswer.Failed(said.getFault());
                case COMPARE -> new OfferAnswer.ToCompare(said.getCompare());
                case PLAN -> new OfferAnswer.Planned(said.getPlan());
                default -> throw new IllegalArgumentException(said.toString());
            };
        }
        JsonNode need = answer.get("need");
        OfferAnswer.Earlier earlier =
                new OfferAnswer.Earlier(
                        need.get("ctime_s").longValue(),
                        need.get("ctime_ns").intValue(),
                        need.get("digest").isNull() ? ByteString.EMPTY : bytes(need.get("digest")),
                        need.get("is_read_back").booleanValue());
        return new OfferAnswer.Needed(
                need.get("span_bytes").longValue(),
                set(need.get("file_spans"), need.get("durable")),
                bytes(need.get("stored_as")),
                earlier);
    }

    private void openAndClose(int first, int count) throws ProtocolViolation {
        for (int stream = first; stream < first + count; stream++) {
            receiver.streamOpened(stream);
            receiver.streamClosed(stream);
        }
        while (receiver.pollEvent() != null || receiver.pollMessage() != null) {
            // They are many, and each is the same.
        }
    }

    @Override
    ObjectNode state() {
        ArrayNode inPlace = array();
        names.stream().filter(receiver::hasInPlace).forEach(name -> inPlace.add(hex(name)));
        ObjectNode state = object();
        state.put("may_finish", receiver.mayFinish());
        state.put("is_all_confirmed", receiver.isAllConfirmed());
        state.set("awaits", awaited(receiver.awaits()));
        state.put("lacks_spans", receiver.lacksSpans());
        state.put("has_open_files", receiver.hasOpenFiles());
        state.put("is_urgent", receiver.isUrgent());
        state.set("in_place", inPlace);
        return state;
    }

    @Override
    @Nullable Control pollMessage() {
        return receiver.pollMessage();
    }

    @Override
    @Nullable JsonNode pollEvent() {
        ReceiverEvent event = receiver.pollEvent();
        return event == null ? null : form(event);
    }

    private static JsonNode form(ReceiverEvent event) {
        Control.Builder message = Control.newBuilder();
        if (event instanceof ReceiverEvent.Offered offered) {
            return named("offered", hex(message.setFileOffer(offered.offer())));
        } else if (event instanceof ReceiverEvent.NameTaken taken) {
            ObjectNode form = object().set("fault", hex(taken.fault()));
            form.set("offer", hex(message.setFileOffer(taken.offer())));
            return named("name_taken", form);
        } else if (event instanceof ReceiverEvent.OffersOver over) {
            ObjectNode form = object().set("files", number(over.files()));
            return named("offers_end", form.set("bytes", number(over.bytes())));
        } else if (event instanceof ReceiverEvent.AllVerified verified) {
            return named("all_verified", unsigned(verified.file()));
        } else if (event instanceof ReceiverEvent.Commit commit) {
            return named("commit", unsigned(commit.file()));
        } else if (event instanceof ReceiverEvent.GivenUp given) {
            ObjectNode form = object().set("file", unsigned(given.file()));
            return named("given_up", form.set("fault", hex(given.fault())));
        } else if (event instanceof ReceiverEvent.CloseStream close) {
            ObjectNode form = object().set("stream", unsigned(close.stream()));
            return named("close_stream", form.put("why", close.why()));
        } else if (event instanceof ReceiverEvent.Noticed noticed) {
            return named("notice", hex(message.setNotice(noticed.notice())));
        } else if (event instanceof ReceiverEvent.Finished finished) {
            Finish.Builder finish = Finish.newBuilder().setReport(finished.report());
            return named("finished", hex(message.setFinish(finish)));
        } else if (event instanceof ReceiverEvent.Refused refused) {
            return named("refused", hex(refused.fault()));
        }
        throw new IllegalArgumentException(event.toString());
    }
}
