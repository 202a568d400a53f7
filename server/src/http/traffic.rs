//! What goes over one connection: how much of its answers has arrived, and whether the head of a request has begun.
//!
//! Of HTTP/2 only answers count: a client can have as many pings answered as it likes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::frames::Frames;
use super::socket::SendQueue;

/// What a client of HTTP/2 begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The traffic of one connection, which is noted where it is read and written and asked for elsewhere.
#[derive(Clone)]
pub(crate) struct Traffic(Arc<Mutex<State>>);

struct State {
    protocol: Protocol,
    queue: SendQueue,
    /// Bytes that were handed to the kernel, and those of answers among them. With TLS, what was taken to be encrypted, which is
    /// little less than what the kernel gets.
    sent: u64,
    of_answers: u64,
    /// Since when there is a part of a head and not yet all of it.
    head: Option<Instant>,
    /// Whether the last request brought a body, to which all that comes may belong. HTTP/1.1 only.
    brings_body: bool,
    /// Whether what was written before waits for the client. Until it has left, nobody looks at what has come of the next head.
    waits: bool,
}

enum Protocol {
    /// The client has begun with so many bytes of [`PREFACE`], and with nothing else.
    Unknown {
        begun: usize,
    },
    Http1,
    Http2 {
        /// Bytes of [`PREFACE`] that are still to come.
        preface: usize,
        received: Frames,
        sent: Frames,
    },
}

impl Protocol {
    fn http2(preface: usize) -> Self {
        Self::Http2 { preface, received: Frames::default(), sent: Frames::default() }
    }
}

impl Traffic {
    /// Of a new connection whose bytes wait in `queue`. It speaks HTTP/2 or HTTP/1.1 as `http2` says, or what the client begins with
    /// where that is not known.
    pub(crate) fn new(http2: Option<bool>, queue: SendQueue) -> Self {
        let protocol = match http2 {
            Some(true) => Protocol::http2(PREFACE.len()),
            Some(false) => Protocol::Http1,
            None => Protocol::Unknown { begun: 0 },
        };
        let state =
            State { protocol, queue, sent: 0, of_answers: 0, head: None, brings_body: false, waits: false };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These bytes have come.
    pub(crate) fn received(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.state().received(bytes);
        }
    }

    /// The first `count` bytes of these pieces were sent.
    pub(crate) fn sent<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>, count: usize) {
        let mut state = self.state();
        let mut left = count;
        for piece in pieces {
            let sent = piece.get(..left).unwrap_or(piece);
            left -= sent.len();
            state.sent(sent);
        }
    }

    /// Bytes of all kinds that have arrived at the other end.
    pub(crate) fn arrived(&self) -> u64 {
        let state = self.state();
        state.sent.saturating_sub(state.queue.bytes())
    }

    /// Whether all that was sent has arrived at the other end, and that nothing follows, if that was said.
    pub(crate) fn has_all_arrived(&self) -> bool {
        self.state().queue.bytes() == 0
    }

    /// Whether HTTP/2 is spoken, as far as is known.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.state().protocol, Protocol::Http2 { .. })
    }

    /// Bytes of answers that have arrived at the other end.
    pub(crate) fn answers_arrived(&self) -> u64 {
        let state = self.state();
        state.of_answers.saturating_sub(state.queue.bytes())
    }

    /// The head of a request is complete; a body follows it or not.
    pub(crate) fn request_begins(&self, brings_body: bool) {
        let mut state = self.state();
        // HTTP/2 says itself what belongs to a head.
        if let Protocol::Http1 = state.protocol {
            (state.head, state.brings_body) = (None, brings_body);
        }
    }

    /// The last request that there was is answered.
    pub(crate) fn requests_end(&self) {
        let mut state = self.state();
        // What has come of the next one had to wait until now.
        if state.head.is_some() {
            state.head = Some(Instant::now());
        }
    }

    /// A write waits for the client, or none does any more.
    pub(crate) fn waits(&self, waits: bool) {
        let mut state = self.state();
        if state.waits && !waits && state.head.is_some() {
            state.head = Some(Instant::now());
        }
        state.waits = waits;
    }

    /// Since when a head has begun that is not complete and need not wait for a write. What may be the rest of a body is taken for that.
    pub(crate) fn head_since(&self) -> Option<Instant> {
        let state = self.state();
        state.head.filter(|_| !state.waits)
    }
}

impl State {
    fn received(&mut self, mut bytes: &[u8]) {
        if let Protocol::Unknown { begun } = self.protocol {
            let preface = PREFACE.get(begun..).unwrap_or_default();
            let (begin, rest) = bytes.split_at(bytes.len().min(preface.len()));
            if !preface.starts_with(begin) {
                self.protocol = Protocol::Http1;
            } else if begin.len() < preface.len() {
                self.protocol = Protocol::Unknown { begun: begun + begin.len() };
            } else {
                self.protocol = Protocol::http2(0);
                bytes = rest;
            }
        }
        match &mut self.protocol {
            Protocol::Unknown { .. } => {}
            Protocol::Http1 => {
                if !self.brings_body && self.head.is_none() {
                    self.head = Some(Instant::now());
                }
            }
            Protocol::Http2 { preface, received, .. } => {
                let (begin, frames) = bytes.split_at(bytes.len().min(*preface));
                *preface -= begin.len();
                let head = &mut self.head;
                received.follow(frames, |frame, _, is_whole| {
                    if is_whole && frame.ends_head() {
                        *head = None;
                    } else if frame.is_of_head() {
                        head.get_or_insert_with(Instant::now);
                    }
                });
            }
        }
    }

    fn sent(&mut self, bytes: &[u8]) {
        self.sent += bytes.len() as u64;
        match &mut self.protocol {
            Protocol::Http2 { sent, .. } => {
                let of_answers = &mut self.of_answers;
                sent.follow(bytes, |frame, count, _| {
                    if frame.is_of_message() {
                        *of_answers += count as u64;
                    }
                });
            }
            // Whoever speaks HTTP/2 says so before it is answered.
            Protocol::Http1 | Protocol::Unknown { .. } => self.of_answers += bytes.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::http::frames::frame;

    const SECOND: Duration = Duration::from_secs(1);
    const END_HEADERS: u8 = 4;

    fn traffic(http2: Option<bool>) -> Traffic {
        Traffic::new(http2, SendQueue::default())
    }

    /// Bytes that were sent, and those of answers among them.
    fn counts(traffic: &Traffic) -> (u64, u64) {
        (traffic.arrived(), traffic.answers_arrived())
    }

    /// How long a head has been incomplete.
    fn head_for(traffic: &Traffic) -> Option<Duration> {
        traffic.head_since().map(|since| since.elapsed())
    }

    #[test]
    fn rule_91_answers_to_pings_are_no_answers() {
        let traffic = traffic(Some(true));
        let settings = frame(4, 0, &[0; 30]);
        traffic.sent([&settings[..]], settings.len());
        for _ in 0..1000 {
            let pong = frame(6, 1, &[0; 8]);
            traffic.sent([&pong[..3], &pong[3..]], pong.len());
        }
        assert_eq!(counts(&traffic), (39 + 17 * 1000, 0));
        let (head, data) = (frame(1, END_HEADERS, &[0; 100]), frame(0, 1, &[0; 5000]));
        // Of the last piece only a part is taken.
        traffic.sent([&head[..], &data[..]], head.len() + 9 + 700);
        assert_eq!(counts(&traffic).1, 800);
        traffic.sent([&data[709..]], data.len() - 709);
        assert_eq!(counts(&traffic), (39 + 17 * 1000 + 109 + 5009, 5100));
    }

    #[test]
    fn of_http_1_all_is_answers() {
        for known in [Some(false), None] {
            let traffic = traffic(known);
            traffic.received(b"GET / HTTP/1.1\r\n\r\n");
            traffic.sent([&b"HTTP/1.1 200 OK\r\n"[..], b"\r\n", b"body"], 20);
            assert_eq!(counts(&traffic), (20, 20));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rule_91_a_head_of_http_1_begins_with_its_first_byte() {
        let traffic = traffic(None);
        assert_eq!(head_for(&traffic), None);
        // As HTTP/2 begins, too.
        for piece in [&b"P"[..], b"R", b"OPFIND / HTTP/1.1\r\n"] {
            advance(SECOND).await;
            traffic.received(piece);
        }
        advance(SECOND).await;
        assert_eq!(head_for(&traffic), Some(SECOND));
        traffic.request_begins(false);
        assert_eq!(head_for(&traffic), None);
        // Nothing of the next one is there while the connection is idle.
        traffic.requests_end();
        advance(100 * SECOND).await;
        traffic.received(b"");
        assert_eq!(head_for(&traffic), None);
        traffic.received(b"G");
        advance(SECOND).await;
        traffic.received(b"E");
        assert_eq!(head_for(&traffic), Some(SECOND));
        traffic.request_begins(false);
        // What comes while a request is answered is the next one, and waits for its turn.
        traffic.received(b"GET");
        advance(100 * SECOND).await;
        traffic.requests_end();
        advance(SECOND).await;
        assert_eq!(head_for(&traffic), Some(SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn rule_91_a_head_waits_for_the_end_of_the_answer_before_it() {
        let traffic = traffic(Some(false));
        traffic.received(b"GET / HTTP/1.1\r\n\r\n");
        traffic.request_begins(false);
        traffic.received(b"GET / HTTP/1.1\r\n\r\n");
        traffic.waits(true);
        traffic.requests_end();
        advance(100 * SECOND).await;
        traffic.waits(true);
        assert_eq!(head_for(&traffic), None);
        traffic.waits(false);
        advance(SECOND).await;
        traffic.waits(false);
        assert_eq!(head_for(&traffic), Some(SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_of_a_body_begins_no_head() {
        let traffic = traffic(Some(false));
        traffic.received(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n");
        traffic.request_begins(true);
        traffic.received(b"bo");
        traffic.requests_end();
        traffic.received(b"dy");
        advance(100 * SECOND).await;
        assert_eq!(head_for(&traffic), None);
        traffic.received(b"GET / HTTP/1.1\r\n\r\n");
        traffic.request_begins(false);
        traffic.requests_end();
        traffic.received(b"GET");
        assert_eq!(head_for(&traffic), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn rule_91_a_head_of_http_2_has_begun_until_its_frames_say_that_it_ends() {
        for known in [Some(true), None] {
            let traffic = traffic(known);
            for byte in PREFACE.chunks(1) {
                traffic.received(byte);
            }
            let (begin, more) = (frame(1, 1, b"head"), frame(9, 0, b"more"));
            let end = frame(9, END_HEADERS, b"end");
            // A ping is none, nor is a whole one.
            traffic.received(&[frame(6, 0, &[0; 8]), frame(1, 1 | END_HEADERS, b"head")].concat());
            traffic.request_begins(false);
            traffic.requests_end();
            assert_eq!(head_for(&traffic), None);
            for piece in [&begin[..11], &begin[11..], &more[..], &end[..10]] {
                traffic.received(piece);
                advance(SECOND).await;
            }
            assert_eq!(head_for(&traffic), Some(4 * SECOND));
            traffic.received(&end[10..]);
            assert_eq!(head_for(&traffic), None);
        }
    }
}
