//! Whether a client takes what it is sent fast enough, which is looked at again and again after a while.
//!
//! What arrives does not come evenly, however even a client is: a program that reads slowly has a kernel that tells us only now and then
//! that there is room again, on Linux when a sixteenth of its buffer is free, of 6 MiB where nobody has changed that. Such a buffer fills at
//! once when an answer begins. So what was taken beyond the measure counts the next time, up to what a minute asks for.

/// Bytes that a client must take in a second.
pub(crate) const LEAST_RATE: u64 = 8 * 1024;
/// The most that a client can be ahead.
const MOST_AHEAD: u64 = 60 * LEAST_RATE;

/// How a client takes what it is sent.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes that it must take from one look to the next.
    least: u64,
    /// What it had taken in all at the last look.
    so_far: u64,
    /// By how much it was ahead then.
    ahead: u64,
}

impl Pace {
    /// Of a client that has taken `so_far` bytes and must take `least` until the first look, by `ahead` of which it is ahead already.
    pub(crate) fn new(least: u64, so_far: u64, ahead: u64) -> Self {
        Self { least, so_far, ahead: ahead.min(MOST_AHEAD) }
    }

    /// A look: whether enough was taken since the last. `so_far` counts all that has been taken.
    pub(crate) fn is_kept(&mut self, so_far: u64) -> bool {
        let taken = self.taken(so_far);
        (self.so_far, self.ahead) = (so_far, taken.saturating_sub(self.least).min(MOST_AHEAD));
        taken >= self.least
    }

    /// By how much the client is ahead where `due` bytes had to be taken since the last look.
    pub(crate) fn ahead(&self, so_far: u64, due: u64) -> u64 {
        self.taken(so_far).saturating_sub(due).min(MOST_AHEAD)
    }

    /// What was taken since the last look, and before it beyond the measure.
    fn taken(&self, so_far: u64) -> u64 {
        so_far.saturating_sub(self.so_far) + self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60 * LEAST_RATE;

    #[test]
    fn rule_91_who_takes_enough_in_large_steps_takes_enough() {
        // The kernel of the client has a buffer of 6 MiB, which fills at once; its program is as slow as it may be.
        let (buffer, step) = (6 << 20, (6 << 20) / 16);
        for window in [30, 60] {
            let mut pace = Pace::new(window * LEAST_RATE, 0, 0);
            for look in 1..1000 {
                let read = look * window * LEAST_RATE;
                assert!(pace.is_kept(buffer + read / step * step), "window {window} s, look {look}");
            }
        }
    }

    #[test]
    fn rule_91_who_was_fast_and_stops_is_found_out() {
        let mut pace = Pace::new(MINUTE, 0, 0);
        assert!(pace.is_kept(1 << 30));
        assert!(pace.is_kept(1 << 30));
        assert!(!pace.is_kept(1 << 30));
        // Nobody is ahead who was only just fast enough.
        let mut pace = Pace::new(MINUTE, 7, 0);
        assert!(pace.is_kept(7 + MINUTE) && !pace.is_kept(7 + MINUTE));
    }

    #[test]
    fn how_far_a_client_is_ahead() {
        let pace = Pace::new(MINUTE, 100, 0);
        assert_eq!((pace.ahead(1100, 0), pace.ahead(1100, 600), pace.ahead(1100, 2000)), (1000, 400, 0));
        assert_eq!(pace.ahead(u64::MAX, 0), MINUTE);
        // Seen from TLS a little more may wait than was given.
        assert_eq!(pace.ahead(50, 0), 0);
        assert!(Pace::new(MINUTE, 0, u64::MAX).is_kept(0));
    }
}
