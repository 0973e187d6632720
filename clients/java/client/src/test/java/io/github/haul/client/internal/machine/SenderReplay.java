package io.github.haul.client.internal.machine;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.Finish;
import io.github.haul.client.internal.proto.StreamClosed;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** Plays a session of the sender. */
final class SenderReplay extends Replay {
    /** Streams from 0 on that are asked whether they await an acknowledgement. */
    private static final int STREAMS_ASKED = 16;

    private final Sender sender;

    SenderReplay(JsonNode trace) {
        int offersMax = trace.get("offers_max").intValue();
        sender = new Sender(offersMax, trace.get("offer_bytes_max").longValue());
    }

    @Override
    @Nullable JsonNode call(String name, JsonNode step) throws ProtocolViolation {
        switch (name) {
            case "offer" -> {
                return unsigned(sender.offer(message(step.get("message")).getFileOffer()));
            }
            case "end_offers" ->
                    sender.endOffers(step.get("files").longValue(), step.get("bytes").longValue());
            case "stream_opened" -> sender.streamOpened(integer(step, "stream"));
            case "open_and_close" -> openAndClose(integer(step, "first"), integer(step, "count"));
            case "drop_stream" ->
                    sender.dropStream(integer(step, "stream"), step.get("why").textValue());
            case "next_span" -> {
                return assignment(sender.nextSpan(integer(step, "stream")));
            }
            case "confirm_with_span" -> {
                return BooleanNode.valueOf(sender.confirmWithSpan(integer(step, "file")));
            }
            case "source_failed" ->
                    sender.sourceFailed(integer(step, "file"), Objects.requireNonNull(fault(step)));
            case "source_checked" -> sender.sourceChecked(integer(step, "file"), fault(step));
            case "notice" -> sender.notice(message(step.get("message")).getNotice());
            case "finish" -> sender.finish(message(step.get("message")).getFinish().getReport());
            case "handle" -> sender.handle(message(step.get("message")));
            default -> throw new IllegalArgumentException(name);
        }
        return null;
    }

    private void openAndClose(int first, int count) throws ProtocolViolation {
        for (int stream = first; stream < first + count; stream++) {
            sender.streamOpened(stream);
            StreamClosed closed = StreamClosed.newBuilder().setStream(stream).build();
            sender.handle(Control.newBuilder().setStreamClosed(closed).build());
        }
        while (sender.pollEvent() != null || sender.pollMessage() != null) {
            // They are many, and each is the same.
        }
    }

    private static JsonNode assignment(Sender.@Nullable Assignment next) {
        if (next == null) {
            return text("nothing");
        }
        ObjectNode form = object();
        form.set("file", unsigned(next.file()));
        form.set("span", unsigned(next.span()));
        form.set("offset_bytes", number(next.offsetBytes()));
        form.set("len_bytes", number(next.lenBytes()));
        form.put("whole_file", next.wholeFile());
        return form;
    }

    @Override
    ObjectNode state() {
        ArrayNode open = array();
        sender.openStreams().forEach(stream -> open.add(unsigned(stream)));
        ArrayNode awaiting = array();
        for (int stream = 0; stream < STREAMS_ASKED; stream++) {
            if (sender.awaitsAcknowledgement(stream)) {
                awaiting.add(stream);
            }
        }
        ObjectNode state = object();
        state.put("may_offer", sender.mayOffer());
        state.set("verified_bytes", number(sender.verifiedBytes()));
        state.put("has_files", sender.hasFiles());
        state.put("all_settled", sender.isAllSettled());
        state.set("awaits", awaited(sender.awaits()));
        state.put("has_pending", sender.hasPending());
        state.set("open_streams", open);
        state.set("awaiting_acknowledgement", awaiting);
        return state;
    }

    @Override
    @Nullable Control pollMessage() {
        return sender.pollMessage();
    }

    @Override
    @Nullable JsonNode pollEvent() {
        SenderEvent event = sender.pollEvent();
        return event == null ? null : form(event);
    }

    private static JsonNode form(SenderEvent event) {
        Control.Builder message = Control.newBuilder();
        if (event instanceof SenderEvent.Resumed resumed) {
            return named("resumed", form(resumed));
        } else if (event instanceof SenderEvent.Lost lost) {
            ObjectNode form = object().set("file", unsigned(lost.file()));
            return named("lost", form.set("bytes", number(lost.bytes())));
        } else if (event instanceof SenderEvent.StoredAs stored) {
            ObjectNode form = object().set("file", unsigned(stored.file()));
            return named("stored_as", form.set("name", hex(stored.name())));
        } else if (event instanceof SenderEvent.RemovedNames removed) {
            ArrayNode names = array();
            for (ByteString name : removed.names()) {
                names.add(hex(name));
            }
            return named("removed", names);
        } else if (event instanceof SenderEvent.CheckSource check) {
            return named("check_source", unsigned(check.file()));
        } else if (event instanceof SenderEvent.SpanDamaged damaged) {
            ObjectNode form = object().set("file", unsigned(damaged.file()));
            form.set("span", unsigned(damaged.span()));
            return named("span_damaged", form.set("stream", unsigned(damaged.stream())));
        } else if (event instanceof SenderEvent.StreamOver over) {
            return named("stream_closed", unsigned(over.stream()));
        } else if (event instanceof SenderEvent.Settled settled) {
            ObjectNode form = object().set("file", unsigned(settled.file()));
            form.set("outcome", form(settled.file(), settled.outcome()));
            return named("settled", form.put("source_failed", settled.sourceFailed()));
        } else if (event instanceof SenderEvent.Progressed progressed) {
            return named("progress", hex(message.setProgress(progressed.progress())));
        } else if (event instanceof SenderEvent.Noticed noticed) {
            return named("notice", hex(message.setNotice(noticed.notice())));
        } else if (event instanceof SenderEvent.Finished finished) {
            Finish.Builder finish = Finish.newBuilder().setReport(finished.report());
            return named("finished", hex(message.setFinish(finish)));
        } else if (event instanceof SenderEvent.Refused refused) {
            return named("refused", hex(refused.fault()));
        }
        throw new IllegalArgumentException(event.toString());
    }

    private static JsonNode form(SenderEvent.Resumed resumed) {
        ObjectNode form = object().set("file", unsigned(resumed.file()));
        form.set("bytes", number(resumed.bytes()));
        form.set("span_bytes", number(resumed.spanBytes()));
        form.set("durable", runs(resumed.durable()));
        form.set("ctime_s", number(resumed.ctimeSeconds()));
        form.set("ctime_ns", number(resumed.ctimeNanos()));
        return form.set("digest", hexOrNull(resumed.digest()));
    }

    private static JsonNode form(int file, FileOutcome outcome) {
        Control.Builder message = Control.newBuilder();
        FileAnswer.Builder answer = FileAnswer.newBuilder().setFile(file);
        if (outcome instanceof FileOutcome.Done) {
            return text("done");
        } else if (outcome instanceof FileOutcome.Skipped) {
            return text("skipped");
        } else if (outcome instanceof FileOutcome.Failed failed) {
            return named("failed", hex(failed.fault()));
        } else if (outcome instanceof FileOutcome.ToCompare compared) {
            answer.setCompare(compared.compare());
            return named("compare", hex(message.setFileAnswer(answer)));
        } else if (outcome instanceof FileOutcome.Planned planned) {
            answer.setPlan(planned.plan());
            return named("planned", hex(message.setFileAnswer(answer)));
        }
        throw new IllegalArgumentException(outcome.toString());
    }
}
