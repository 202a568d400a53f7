//! Follows the frames that go one way over an HTTP/2 connection by their heads (RFC 9113, section 4.1).

/// Bytes of a frame's head.
const HEAD_BYTES: u8 = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// What the head of a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    kind: u8,
    flags: u8,
}

impl Frame {
    /// Whether it is part of a request or of an answer; others only keep the connection going, such as the answer to a ping.
    pub(crate) fn is_of_message(self) -> bool {
        matches!(self.kind, DATA | HEADERS | CONTINUATION)
    }

    /// Whether it is part of the head of a request.
    pub(crate) fn is_of_head(self) -> bool {
        matches!(self.kind, HEADERS | CONTINUATION)
    }

    /// Whether the head of a request ends with it.
    pub(crate) fn ends_head(self) -> bool {
        self.is_of_head() && self.flags & END_HEADERS != 0
    }
}

/// Where in its frames a connection is.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The bytes of a head that have come, the first as the highest, and how many.
    head: u128,
    count: u8,
    /// Bytes of the payload that are still to come, once the head is complete.
    left: usize,
}

impl Frames {
    /// Follows further bytes. `note` is told of each stretch of payload, which may be of no bytes: of which frame it is, how long, and
    /// whether the frame ends with it.
    pub(crate) fn follow(&mut self, mut bytes: &[u8], mut note: impl FnMut(Frame, usize, bool)) {
        while !bytes.is_empty() {
            while let Some((byte, rest)) = bytes.split_first()
                && self.count < HEAD_BYTES
            {
                self.head = (self.head << 8) | u128::from(*byte);
                self.count += 1;
                bytes = rest;
                if self.count == HEAD_BYTES {
                    // Three bytes of length, one of kind, one of flags, four of the stream.
                    self.left = ((self.head >> 48) & 0xff_ffff) as usize;
                }
            }
            if self.count < HEAD_BYTES {
                return;
            }
            let stretch = bytes.len().min(self.left);
            // It is no longer than what there is.
            bytes = bytes.split_at(stretch).1;
            self.left -= stretch;
            let is_whole = self.left == 0;
            note(Frame { kind: (self.head >> 40) as u8, flags: (self.head >> 32) as u8 }, stretch, is_whole);
            if is_whole {
                *self = Self::default();
            }
        }
    }
}

/// The bytes of a frame.
#[cfg(test)]
pub(crate) fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    let mut bytes = length.to_vec();
    bytes.extend([kind, flags, 0x80, 0, 0, 7]);
    bytes.extend(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, flags and length of each frame of `pieces`.
    fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(u8, u8, usize)> {
        let (mut frames, mut found, mut length) = (Frames::default(), Vec::new(), 0);
        for piece in pieces {
            frames.follow(piece, |frame, stretch, is_whole| {
                length += stretch;
                if is_whole {
                    found.push((frame.kind, frame.flags, std::mem::take(&mut length)));
                }
            });
        }
        found
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let (long, pong) = ([0xff_u8; 70_000], [0_u8; 8]);
        let sent = [frame(4, 0, &[]), frame(DATA, 1, &long), frame(6, 1, &pong), frame(HEADERS, 5, b"head")];
        let bytes = sent.concat();
        let expected: [(u8, u8, usize); 4] = [(4, 0, 0), (DATA, 1, 70_000), (6, 1, 8), (HEADERS, 5, 4)];
        for size in [1, 2, 5, 9, 10, 16_384, bytes.len()] {
            assert_eq!(read(bytes.chunks(size)), expected, "{size}");
        }
    }

    #[test]
    fn what_a_frame_is_of() {
        let frame = |kind, flags| Frame { kind, flags };
        for kind in 0..=u8::MAX {
            assert_eq!(frame(kind, 0).is_of_message(), [0, 1, 9].contains(&kind), "{kind}");
            assert_eq!(frame(kind, 4).ends_head(), [1, 9].contains(&kind), "{kind}");
            assert!(!frame(kind, 1).ends_head());
        }
    }
}
