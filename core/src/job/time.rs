//! Points in time as the interface writes them.

use std::fmt;
use std::str::FromStr;

use super::text::serde_as_text;
use crate::error::{Error, Result};

/// A point in time, to the microsecond; written as RFC 3339 in UTC, always `2026-01-31T12:00:00.000000Z` wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// The system's clock now.
    pub fn now() -> Self {
        Self::from_micros(jiff::Timestamp::now().as_microsecond())
    }

    /// Microseconds since 1970; what no calendar can write becomes the nearest that it can.
    pub fn from_micros(micros: i64) -> Self {
        let clamped = jiff::Timestamp::from_microsecond(micros);
        Self(clamped.unwrap_or(if micros < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX }))
    }

    /// Microseconds since 1970.
    pub fn as_micros(self) -> i64 {
        self.0.as_microsecond()
    }

    /// `seconds` later.
    #[must_use]
    pub fn plus_seconds(self, seconds: u64) -> Self {
        let micros = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        Self::from_micros(self.as_micros().saturating_add(micros))
    }

    /// `seconds` earlier.
    #[must_use]
    pub fn minus_seconds(self, seconds: u64) -> Self {
        let micros = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        Self::from_micros(self.as_micros().saturating_sub(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0)
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let time: jiff::Timestamp =
            text.parse().map_err(|e| Error::argument(format!("{text:?} is not a point in time: {e}")))?;
        Ok(Self::from_micros(time.as_microsecond()))
    }
}

serde_as_text!(Timestamp);

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule 74 of docs/rest.md.
    #[test]
    fn the_width_never_changes() {
        for micros in [0, 1, 1_700_000_000_000_000, 1_700_000_000_100_000, 1_700_000_000_123_456] {
            let time = Timestamp::from_micros(micros);
            let text = time.to_string();
            assert_eq!(text.len(), 27, "{text}");
            assert!(text.ends_with('Z'));
            assert_eq!(text.parse::<Timestamp>().unwrap(), time);
        }
        assert_eq!(Timestamp::from_micros(0).to_string(), "1970-01-01T00:00:00.000000Z");
        assert!(Timestamp::from_micros(0) < Timestamp::now());
        assert_eq!(Timestamp::from_micros(0).plus_seconds(90).minus_seconds(90).as_micros(), 0);
        assert!(Timestamp::from_micros(i64::MAX).plus_seconds(u64::MAX) > Timestamp::now());
    }
}
