//! What a child writes to stderr: of what may be endless, the end, the time stamps and the reason of a failure.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest part of a log line that is kept, bytes.
const LINE_LIMIT: usize = 1024;

/// How many of the last log lines are kept.
const TAIL: usize = 24;

/// What a child wrote to stderr.
#[derive(Debug, Clone, Default)]
pub(in crate::video) struct Log {
    /// The last lines, without the addresses that ffmpeg puts in front.
    tail: VecDeque<String>,
    /// How many lines were marked as errors.
    pub(in crate::video) errors: u64,
    /// Time stamps in seconds, as the `showinfo` filter printed them: one for each frame.
    pub(in crate::video) timestamps: Vec<f64>,
    /// The last decoder that was not opened because it is not on the list.
    refused_decoder: Option<String>,
    /// How many frames `showinfo` has seen, for those who cannot wait for the log.
    pub(super) seen: Arc<AtomicU64>,
    /// The signal after which ffmpeg ended in order.
    pub(super) signal: Option<i32>,
}

/// The number of SIGTERM.
const TERMINATE: i32 = 15;

impl Log {
    /// Reads to the end of `stderr`.
    pub(super) fn drain(mut self, mut stderr: impl Read) -> Log {
        let mut chunk = [0u8; 8192];
        let mut line = Vec::with_capacity(LINE_LIMIT);
        loop {
            let count = match stderr.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            for &byte in &chunk[..count] {
                if byte == b'\n' || byte == b'\r' {
                    self.take_line(&line);
                    line.clear();
                } else if line.len() < LINE_LIMIT {
                    line.push(byte);
                }
            }
        }
        self.take_line(&line);
        self
    }

    fn take_line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if line.contains("Parsed_showinfo") {
            if let Some(time) = showinfo_time(&line) {
                self.timestamps.push(time);
                self.seen.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        // Sound is not decoded, by intent. If the picture is refused, no frame comes, which is told elsewhere.
        if let Some(decoder) = refused_decoder(&line) {
            self.refused_decoder = Some(decoder.to_owned());
            return;
        }
        if let Some((_, number)) = line.split_once("Exiting normally, received signal ") {
            self.signal = number.trim_end().trim_end_matches('.').parse().ok();
        } else if line.contains("system signals, hard exiting") {
            // Asked too often: then it does not say which signal it was, and what it had still to write is lost.
            self.signal = Some(TERMINATE);
        }
        // Uneven times offend the raw output, which has no times.
        if line.contains("[info]") || line.contains(" to muxer in stream ") {
            return;
        }
        self.errors += u64::from(line.contains("[error]") || line.contains("[fatal]"));
        let text = without_prefix(&line).trim();
        if text.is_empty() {
            return;
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(text.to_owned());
    }

    /// The last thing of weight that the child said, for a message.
    pub(in crate::video) fn summary(&self) -> &str {
        // The limit on pixels makes everything after it fail too.
        if let Some(line) = self.tail.iter().find(|line| line.contains("exceeds specified max pixel count")) {
            return line.split_once(", see the documentation").map_or(line, |(line, _)| line);
        }
        // The last lines only repeat that the conversion failed.
        let vague =
            ["Conversion failed", "Error while decoding stream", "Exiting normally", "received signal"];
        self.tail
            .iter()
            .rev()
            .find(|line| !vague.iter().any(|v| line.contains(v)))
            .map_or("it gave no reason", String::as_str)
    }

    /// The last decoder that the child wanted to open and must not.
    pub(in crate::video) fn refused_decoder(&self) -> Option<&str> {
        self.refused_decoder.as_deref()
    }

    /// Whether the child said `text`.
    pub(in crate::video) fn says(&self, text: &str) -> bool {
        self.tail.iter().any(|line| line.contains(text))
    }
}

/// The time in `[Parsed_showinfo_1 @ 0x5581] [info] n:   3 pts:   1536 pts_time:0.12 ...`; NaN if the frame has none.
fn showinfo_time(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once(" pts_time:")?;
    Some(rest.split_whitespace().next()?.parse().unwrap_or(f64::NAN))
}

/// The decoder in `[aac @ 0x55] [error] Codec (aac) not on whitelist 'h264,...'`.
fn refused_decoder(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("Codec (")?;
    rest.split_once(") not on whitelist").map(|(name, _)| name)
}

/// Cuts `[h264 @ 0x5581] [error] ` from the front of a line.
fn without_prefix(line: &str) -> &str {
    let mut rest = line.trim_start();
    while let Some(inner) = rest.strip_prefix('[') {
        match inner.split_once("] ") {
            Some((_, tail)) => rest = tail,
            None => break,
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_times_errors_and_the_reason() {
        let text = "[Parsed_showinfo_0 @ 0x55] [info] n:   0 pts:      0 pts_time:0       pos:  48 fmt:gray\n\
                    [Parsed_showinfo_0 @ 0x55] [info] n:   1 pts:    512 pts_time:0.04    pos:  99\n\
                    [mov,mp4 @ 0x1] [error] moov atom not found\n\
                    [error] Conversion failed!\n";
        let log = Log::default().drain(text.as_bytes());
        assert_eq!(log.timestamps, [0.0, 0.04]);
        assert_eq!(log.errors, 2);
        assert_eq!(log.summary(), "moov atom not found");
    }

    #[test]
    fn an_endless_line_and_many_lines_stay_small() {
        let mut text = vec![b'x'; 1 << 20];
        for _ in 0..10_000 {
            text.extend_from_slice(b"\n[error] again");
        }
        let log = Log::default().drain(&text[..]);
        assert_eq!(log.errors, 10_000);
        assert!(log.tail.len() <= TAIL && log.tail.iter().all(|l| l.len() <= LINE_LIMIT));
    }
}
