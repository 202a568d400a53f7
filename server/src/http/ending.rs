//! How long a connection that was told to end may stay for what it still has to send.
//!
//! The ends of its answers may still wait for the client though their requests are done. So it stays as long as they are taken at the
//! least pace; but pings are answered too, so that this has an end of its own. Both are measured from the last moment at which there was
//! a request: an answer may take hours, and its last bytes are worth as much as its first.

use std::time::Duration;

use tokio::time::Instant;

/// A connection that takes no new requests.
pub(crate) struct Ending {
    /// In this time at least `least` bytes must go out.
    window: Duration,
    least: u64,
    /// The longest that it may stay without a request.
    longest: Duration,
    /// When there last was a request; when it was told to end, if there was none since.
    busy_until: Instant,
    /// When the window began, and what had gone out by then.
    since: Instant,
    sent: u64,
}

impl Ending {
    /// The connection was told to end just now; `sent` bytes have gone out so far.
    pub(crate) fn begin(window: Duration, least: u64, longest: Duration, now: Instant, sent: u64) -> Self {
        Self { window, least, longest, busy_until: now, since: now, sent }
    }

    /// Whether it is to be cut; to be asked again and again. `sent` counts all that has gone out so far.
    pub(crate) fn is_over(&mut self, now: Instant, is_busy: bool, sent: u64) -> bool {
        if is_busy {
            (self.busy_until, self.since, self.sent) = (now, now, sent);
            return false;
        }
        if now - self.since < self.window {
            return false;
        }
        let taken = sent.saturating_sub(self.sent);
        (self.since, self.sent) = (now, sent);
        taken < self.least || now - self.busy_until >= self.longest
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const WINDOW: Duration = Duration::from_secs(30);
    const HOUR: Duration = Duration::from_secs(3600);
    const PACE: u64 = 8 * 1024;

    /// A connection that is looked at every second.
    struct Connection {
        ending: Ending,
        sent: u64,
    }

    impl Connection {
        /// One of which a minute of an answer has gone out.
        fn told_to_end() -> Self {
            let sent = 60 * PACE;
            Self { ending: Ending::begin(WINDOW, 30 * PACE, HOUR, Instant::now(), sent), sent }
        }

        /// For how long it stays while `pace` bytes go out every second; no longer than `most`.
        async fn stays(&mut self, most: Duration, is_busy: bool, pace: u64) -> Duration {
            let began = Instant::now();
            while began.elapsed() < most {
                advance(SECOND).await;
                self.sent += pace;
                if self.ending.is_over(Instant::now(), is_busy, self.sent) {
                    break;
                }
            }
            began.elapsed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rule_91_the_end_of_an_answer_is_waited_for_however_long_it_took() {
        let mut connection = Connection::told_to_end();
        assert_eq!(connection.stays(3 * HOUR, true, PACE).await, 3 * HOUR);
        // Its last bytes wait for the client, who takes them as fast as it has to, and then no more.
        assert_eq!(connection.stays(2 * WINDOW, false, PACE).await, 2 * WINDOW);
        assert_eq!(connection.stays(HOUR, false, 0).await, WINDOW);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_soon() {
        assert_eq!(Connection::told_to_end().stays(HOUR, false, 0).await, WINDOW);
        assert_eq!(Connection::told_to_end().stays(HOUR, false, PACE / 2).await, WINDOW);
        // What went out while there was a request does not count.
        let mut connection = Connection::told_to_end();
        connection.stays(HOUR, true, PACE).await;
        assert_eq!(connection.stays(HOUR, false, PACE / 2).await, WINDOW);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_pings_keep_no_connection_for_ever() {
        assert_eq!(Connection::told_to_end().stays(3 * HOUR, false, PACE).await, HOUR);
    }
}
