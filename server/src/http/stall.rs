//! A connection whose other end takes next to nothing is given up: hyper itself waits for ever on writes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::traffic::Traffic;

/// A stream whose writes fail once they have waited for `limit`, in all, while fewer than `least` bytes arrived.
pub(crate) struct StallGuard<S> {
    stream: S,
    /// Where what comes and goes is noted.
    traffic: Traffic,
    limit: Duration,
    least: u64,
    /// How long writes have waited since enough had arrived for the last time, and what had arrived by then.
    waited: Duration,
    arrived: u64,
    /// Runs while a write waits, until the limit is reached; since when it does.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<S> StallGuard<S> {
    pub(crate) fn new(stream: S, traffic: Traffic, limit: Duration, least: u64) -> Self {
        Self { stream, traffic, limit, least, waited: Duration::ZERO, arrived: 0, waiting: None }
    }

    /// Passes on what a write said, unless writes have waited for too long.
    fn watch<T>(&mut self, result: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.traffic.waits(result.is_pending());
        if let Poll::Ready(done) = result {
            if let Some((since, _)) = self.waiting.take() {
                self.waited += since.elapsed();
            }
            return match self.is_stuck() {
                true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                false => Poll::Ready(done),
            };
        }
        let left = self.limit.saturating_sub(self.waited);
        let (_, limit) = self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
        if limit.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        if let Some((since, _)) = self.waiting.take() {
            self.waited += since.elapsed();
        }
        if self.is_stuck() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        // Enough has arrived; the wait goes on.
        let (_, limit) = self.waiting.insert((Instant::now(), Box::pin(sleep(self.limit))));
        let _ = limit.as_mut().poll(context);
        Poll::Pending
    }

    /// Whether too little has arrived for how long was waited; what was enough is forgotten.
    fn is_stuck(&mut self) -> bool {
        if self.waited < self.limit {
            return false;
        }
        let arrived = self.traffic.arrived();
        let stuck = arrived.saturating_sub(self.arrived) < self.least;
        (self.waited, self.arrived) = (Duration::ZERO, arrived);
        stuck
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = result {
            this.traffic.received(buffer.filled().get(before..).unwrap_or_default());
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &result {
            this.traffic.sent([bytes], *count);
        }
        this.watch(result, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(context, buffers);
        if let Poll::Ready(Ok(count)) = &result {
            this.traffic.sent(buffers.iter().map(|buffer| &**buffer), *count);
        }
        this.watch(result, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_flush(context);
        this.watch(result, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_shutdown(context);
        this.watch(result, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::http::socket::SendQueue;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Writes 64 bytes to a reader that takes `bytes` of them every `pause`.
    async fn write_to(bytes: usize, pause: Duration) -> (io::Result<()>, Duration) {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let traffic = Traffic::new(Some(false), SendQueue::default());
        let mut guarded = StallGuard::new(ours, traffic, LIMIT, 16);
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; bytes];
            loop {
                tokio::time::sleep(pause).await;
                if theirs.read_exact(&mut buffer).await.is_err() {
                    return;
                }
            }
        });
        let began = Instant::now();
        let written = guarded.write_all(&[0; 64]).await;
        drop(guarded);
        let _ = reader.await;
        (written, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn rule_91_no_head_is_judged_while_a_write_waits() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let traffic = Traffic::new(Some(false), SendQueue::default());
        let mut guarded = StallGuard::new(ours, traffic.clone(), LIMIT, 16);
        traffic.received(b"GET");
        let written = tokio::spawn(async move { guarded.write_all(&[0; 20]).await });
        sleep(LIMIT / 2).await;
        assert_eq!(traffic.head_since(), None);
        theirs.read_exact(&mut [0; 20]).await.unwrap();
        written.await.unwrap().unwrap();
        assert_eq!(traffic.head_since(), Some(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_all_of_it() {
        write_to(16, Duration::from_secs(50)).await.0.unwrap();
        write_to(1, Duration::from_secs(3)).await.0.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stands_still_or_only_nibbles_is_given_up() {
        for (bytes, pause) in [(16, 10 * LIMIT), (1, LIMIT / 4)] {
            let (written, time) = write_to(bytes, pause).await;
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut, "{bytes} bytes every {pause:?}");
            assert!(time <= 20 * LIMIT, "{time:?}");
        }
    }
}
