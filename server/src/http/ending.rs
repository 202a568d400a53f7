//! How long a connection that was told to end may stay for what it still has to send.
//!
//! The ends of its answers may still wait for the client though their requests are done. So it stays as long as they are taken at the
//! least pace; so that nobody can go on like that for ever, this has an end of its own. Both are measured from the last moment at which
//! there was a request: an answer may take hours, and its last bytes are worth as much as its first.

use std::time::Duration;

use tokio::time::Instant;

use super::pace::Pace;

/// A connection that takes no new requests.
pub(crate) struct Ending {
    /// In this time at least `least` bytes must arrive.
    window: Duration,
    least: u64,
    /// The longest that it may stay without a request.
    longest: Duration,
    /// When there last was a request; when it was told to end, if there was none since.
    busy_until: Instant,
    /// When the window began, and what is taken in it.
    since: Instant,
    pace: Pace,
}

impl Ending {
    /// The connection was told to end just now; `arrived` bytes have arrived so far, and its client is `ahead` by so many.
    pub(crate) fn begin(
        window: Duration,
        least: u64,
        longest: Duration,
        now: Instant,
        arrived: u64,
        ahead: u64,
    ) -> Self {
        let pace = Pace::new(least, arrived, ahead);
        Self { window, least, longest, busy_until: now, since: now, pace }
    }

    /// Whether it is to be cut; to be asked again and again. While there is a request, `busy` says by how many bytes its client is
    /// ahead; `arrived` counts all that has arrived so far.
    pub(crate) fn is_over(&mut self, now: Instant, busy: Option<u64>, arrived: u64) -> bool {
        if let Some(ahead) = busy {
            (self.busy_until, self.since) = (now, now);
            self.pace = Pace::new(self.least, arrived, ahead);
            return false;
        }
        if now - self.since < self.window {
            return false;
        }
        self.since = now;
        !self.pace.is_kept(arrived) || now - self.busy_until >= self.longest
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
            Self { ending: Ending::begin(WINDOW, 30 * PACE, HOUR, Instant::now(), sent, 0), sent }
        }

        /// For how long it stays while `pace` bytes go out every second; no longer than `most`.
        async fn stays(&mut self, most: Duration, is_busy: bool, pace: u64) -> Duration {
            let began = Instant::now();
            while began.elapsed() < most {
                advance(SECOND).await;
                self.sent += pace;
                if self.ending.is_over(Instant::now(), is_busy.then_some(0), self.sent) {
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

    /// Its kernel has taken all that it has room for, and tells of more only now and then.
    #[tokio::test(start_paused = true)]
    async fn rule_91_who_is_ahead_may_take_the_end_in_steps() {
        let begin = |ahead| Ending::begin(WINDOW, 30 * PACE, HOUR, Instant::now(), 0, ahead);
        for (ahead, windows) in [(0, 1), (29 * PACE, 1), (30 * PACE, 2), (60 * PACE, 3), (u64::MAX, 3)] {
            let mut connection = Connection { ending: begin(ahead), sent: 0 };
            assert_eq!(connection.stays(HOUR, false, 0).await, windows * WINDOW, "{ahead}");
        }
        // While there is a request, it is asked anew.
        let mut connection = Connection { ending: begin(60 * PACE), sent: 0 };
        connection.stays(HOUR, true, PACE).await;
        assert_eq!(connection.stays(HOUR, false, 0).await, WINDOW);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_pings_keep_no_connection_for_ever() {
        assert_eq!(Connection::told_to_end().stays(3 * HOUR, false, PACE).await, HOUR);
    }
}
