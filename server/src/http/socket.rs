//! What a kernel still has of the bytes that it was given for a connection.
//!
//! It takes megabytes at once, and then nothing until a third of them is gone: what it takes does not say how fast a client is. So what
//! has not arrived yet does not count as taken, and no more than a little waits there that is not even on its way. What is more urgent,
//! such as the answer to another request of the same connection, would wait behind it.

#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, RawFd};

use tokio::net::TcpStream;

/// Bytes that may wait in the kernel before they are on their way.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: libc::c_int = 128 * 1024;

/// The bytes of a connection that its kernel has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SendQueue {
    /// Nothing where there is no kernel to ask. It is asked only while the connection is open.
    #[cfg(target_os = "linux")]
    socket: Option<RawFd>,
}

#[cfg(target_os = "linux")]
impl SendQueue {
    /// That of `stream`, in which few bytes wait from now on. To be asked only while the stream is open.
    pub(crate) fn of(stream: &TcpStream) -> Self {
        let (socket, most) = (stream.as_raw_fd(), UNSENT_BYTES);
        // SAFETY: the socket is open, and the kernel reads one `c_int` from the pointer. If it knows no such option, all is as it was.
        unsafe {
            libc::setsockopt(
                socket,
                libc::IPPROTO_TCP,
                libc::TCP_NOTSENT_LOWAT,
                (&raw const most).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            );
        }
        Self { socket: Some(socket) }
    }

    /// Bytes that the kernel was given and of which the other end has not said that they have arrived.
    pub(crate) fn bytes(self) -> u64 {
        let Some(socket) = self.socket else { return 0 };
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one `c_int` to the pointer, and nothing where the descriptor is none that waits for something.
        let status = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes) };
        if status == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }
}

/// Elsewhere what the kernel takes counts as arrived.
#[cfg(not(target_os = "linux"))]
impl SendQueue {
    pub(crate) fn of(_stream: &TcpStream) -> Self {
        Self::default()
    }

    pub(crate) fn bytes(self) -> u64 {
        0
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn rule_91_what_has_not_arrived_is_known_and_is_little() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let queue = SendQueue::of(&server);
        // Both kernels take what they take; the client takes nothing.
        let (chunk, mut given) = (vec![0_u8; 64 * 1024], 0);
        while timeout(Duration::from_millis(200), server.writable()).await.is_ok() {
            given += server.try_write(&chunk).unwrap_or(0);
        }
        let waiting = queue.bytes();
        assert!((1..1 << 20).contains(&waiting) && waiting < given as u64, "{waiting} of {given}");
        // Once it has taken all, all has arrived.
        let mut taken = vec![0; given];
        client.read_exact(&mut taken).await.unwrap();
        let arrives = async {
            while queue.bytes() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), arrives).await.unwrap();
        assert_eq!(SendQueue::default().bytes(), 0);
    }
}
