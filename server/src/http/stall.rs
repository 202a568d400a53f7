//! A connection whose other end takes next to nothing is given up: hyper itself waits for ever on writes.
//!
//! A connection of HTTP/2 is closed only when all that was sent has arrived. Its client goes on sending while it takes the end of an
//! answer (it makes room for more, it answers pings), and a kernel that gets something for a socket that is closed drops what it still
//! has to send and resets the connection. Who speaks HTTP/1.1 sends nothing then.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::traffic::Traffic;

/// How often a connection that is shut down is asked whether all has arrived.
const ARRIVAL_LOOK: Duration = Duration::from_millis(100);

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
    /// The next look at what has arrived, once the stream is shut down and only that is left to wait for.
    lingering: Option<Pin<Box<Sleep>>>,
}

impl<S> StallGuard<S> {
    pub(crate) fn new(stream: S, traffic: Traffic, limit: Duration, least: u64) -> Self {
        Self {
            stream,
            traffic,
            limit,
            least,
            waited: Duration::ZERO,
            arrived: 0,
            waiting: None,
            lingering: None,
        }
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

impl<S: AsyncRead + Unpin> StallGuard<S> {
    /// Drops what still comes, until all that was sent has arrived or nothing can come any more.
    fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut dropped = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut dropped);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                // Where nothing can come, the kernel sends the rest also when the socket is closed.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        let look = self.lingering.get_or_insert_with(|| Box::pin(sleep(ARRIVAL_LOOK)));
        while !self.traffic.has_all_arrived() {
            // Nobody says when something arrives.
            ready!(look.as_mut().poll(context));
            look.as_mut().reset(Instant::now() + ARRIVAL_LOOK);
        }
        Poll::Ready(())
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
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
        if this.lingering.is_none() {
            let result = Pin::new(&mut this.stream).poll_shutdown(context);
            if !matches!(result, Poll::Ready(Ok(()))) || !this.traffic.is_http2() {
                return this.watch(result, context);
            }
        }
        let result = this.poll_arrival(context).map(Ok);
        this.watch(result, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    #[cfg(target_os = "linux")]
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;
    #[cfg(target_os = "linux")]
    use crate::http::frames::frame;
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

    /// Both ends of a connection of HTTP/2 whose client takes little at once: most of an answer waits in the kernel of the server.
    #[cfg(target_os = "linux")]
    async fn connection() -> (StallGuard<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 * 1024).unwrap();
        let client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let traffic = Traffic::new(Some(true), SendQueue::of(&server));
        (StallGuard::new(server, traffic, LIMIT, 16), client)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn rule_91_the_end_of_an_answer_arrives_though_its_client_goes_on_sending() {
        let (mut guarded, mut client) = connection().await;
        let (answer, ping) = (frame(0, 1, &[7; 64 * 1024]), frame(6, 0, &[0; 8]));
        let length = answer.len();
        let sent = tokio::spawn(async move {
            guarded.write_all(&answer).await?;
            guarded.shutdown().await
        });
        let (mut taken, mut buffer) = (0, [0; 4096]);
        loop {
            sleep(Duration::from_millis(5)).await;
            // The server may be gone when all has arrived.
            let _ = client.write_all(&ping).await;
            match client.read(&mut buffer).await.unwrap() {
                0 => break,
                count => taken += count,
            }
        }
        assert_eq!(taken, length);
        sent.await.unwrap().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(start_paused = true)]
    async fn rule_91_a_client_that_does_not_take_the_end_of_an_answer_is_given_up() {
        let (mut guarded, client) = connection().await;
        guarded.write_all(&frame(0, 1, &[7; 64 * 1024])).await.unwrap();
        let began = Instant::now();
        assert_eq!(guarded.shutdown().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() <= 3 * LIMIT, "{:?}", began.elapsed());
        drop(client);
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
