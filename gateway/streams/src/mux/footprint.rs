//! How many entries everything has that can grow.

use super::Mux;

impl Mux {
    /// As [`crate::Peer::footprint`], of one run.
    pub(crate) fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        // Without `..`: a field that is added has to be thought of here.
        let Mux {
            config: _,
            side: _,
            incarnation: _,
            peer_incarnation: _,
            former: _,
            announcement: _,
            peer_announcement: _,
            hello_sequence: _,
            hello_due: _,
            streams,
            by_age,
            early,
            next_id: _,
            first_valid: _,
            unaddressed_below: _,
            peer_first_valid: _,
            peer_first_valid_is_final: _,
            closed,
            refused,
            classes,
            restored,
            next_restored_ticket: _,
            blocked,
            unsealed,
            control,
            loose,
            peer_credit: _,
            charged,
            under_way,
            credit_changed: _,
            granted: _,
            excess,
            promised_excess: _,
            runs,
            untold: _,
            untold_streams,
            limits,
            beyond_credit: _,
            beginning_bytes,
            unwanted,
            ended,
            buffered,
            present_buffers: _,
            writers,
            writers_retry: _,
            writers_told: _,
            events,
            sent_bytes: _,
            // By class, whose number is bounded.
            counters: _,
        } = self;
        tell("streams", streams.len());
        tell("streams by age", by_age.len());
        tell("streams without their OPEN", *early);
        tell("ranges of closed streams", closed.len());
        tell("ranges of refused streams", refused.len());
        for queue in classes {
            queue.footprint(tell);
        }
        tell("restored flows", restored.len());
        tell("streams without credit", blocked.len());
        tell("streams to seal", unsealed.len());
        tell("streams with control frames", control.len());
        tell("control frames of gone streams", loose.len());
        tell(
            "payloads under way",
            usize::try_from(*under_way).unwrap_or(usize::MAX),
        );
        tell(
            "bytes charged",
            usize::try_from(*charged).unwrap_or(usize::MAX),
        );
        tell(
            "bytes of credit in use",
            usize::try_from(*excess).unwrap_or(usize::MAX),
        );
        tell("runs beyond gaps", *runs);
        tell("streams with consumption to tell", untold_streams.len());
        tell("limits to tell", limits.len());
        tell("unwanted streams", unwanted.len());
        tell("ended streams with bytes", ended.len());
        tell("bytes to seal", *buffered);
        tell("bytes to begin anew with", *beginning_bytes);
        tell("waiting writers", writers.len());
        tell("stream events", events.len());
    }
}
