//! Accepts connections, within limits, until it is told to stop; then lets requests finish.
//!
//! Every connection is one task. A slow client costs that task and a little memory, never a thread, and is cut: its
//! handshake and every request head must arrive within the header timeout, bodies have limits of their own, and an answer
//! must keep moving.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::answer;
use super::api::Api;
use super::client::Connection;
use super::stall::StallGuard;
use super::tls::Tls;

/// Requests that run when the server is told to stop may take this long.
const FINISH_WITHIN: Duration = Duration::from_secs(10);
/// An answer that does not move for this long is given up.
const STALL: Duration = Duration::from_secs(60);
/// Largest head of a request, and the read buffer of a connection.
const BUFFER_BYTES: usize = 64 * 1024;
/// Memory that one HTTP/2 connection may fill with bodies that are not yet read.
const WINDOW_BYTES: u32 = 1 << 20;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 64;

/// Serves until `stop` becomes true and requests have ended, or [`FINISH_WITHIN`] has passed.
pub(crate) async fn serve(
    listener: TcpListener,
    api: Arc<Api>,
    tls: Option<Arc<Tls>>,
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let limits = &api.config().connections;
    let slots = Arc::new(Semaphore::new(limits.max_connections.max(1)));
    let addresses = Addresses::default();
    let proxies = api.config().trusted_proxies.clone();
    loop {
        // Beyond the limit, connections wait in the kernel's queue.
        let slot = tokio::select! {
            slot = slots.clone().acquire_owned() => slot,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Ok(slot) = slot else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: try again when some connections have ended.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let address = peer.ip().to_canonical();
        let most = if proxies.contains(&address) { 0 } else { limits.max_connections_per_address };
        let Some(place) = addresses.enter(address, most) else {
            metrics::counter!("reconstruct_connections_refused_total").increment(1);
            continue;
        };
        let guards = Guards { _slot: slot, _place: place };
        let task = accept(api.clone(), stream, tls.clone(), graceful.watcher(), guards);
        tokio::spawn(task);
    }
    drop(listener);
    if timeout(FINISH_WITHIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time and are cut");
    }
}

/// What a connection holds while it lasts.
struct Guards {
    _slot: OwnedSemaphorePermit,
    _place: Place,
}

async fn accept(api: Arc<Api>, stream: TcpStream, tls: Option<Arc<Tls>>, watcher: Watcher, guards: Guards) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
    let _ = stream.set_nodelay(true);
    let connection = Connection { peer, local, tls: tls.is_some() };
    metrics::gauge!("reconstruct_connections").increment(1.0);
    match tls {
        None => {
            let h2 = if api.config().h2c { None } else { Some(false) };
            handle(&api, stream, connection, h2, watcher).await;
        }
        Some(tls) => {
            let handshake = tls.acceptor().accept(stream);
            if let Ok(Ok(stream)) = timeout(api.config().connections.header_timeout(), handshake).await {
                let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                handle(&api, stream, connection, Some(h2), watcher).await;
            }
        }
    }
    metrics::gauge!("reconstruct_connections").decrement(1.0);
    drop(guards);
}

/// Speaks HTTP/2 or HTTP/1.1 as `h2` says, or what the client begins with where that is not known.
async fn handle<S>(api: &Arc<Api>, stream: S, connection: Connection, h2: Option<bool>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let header_timeout = api.config().connections.header_timeout();
    let began = Arc::new(AtomicBool::new(false));
    let service = {
        let (api, began) = (api.clone(), began.clone());
        service_fn(move |request| {
            began.store(true, Ordering::Relaxed);
            let api = api.clone();
            async move { Ok::<_, Infallible>(answer::answer(&api, connection, request).await) }
        })
    };
    let builder = builder(header_timeout);
    let builder = match h2 {
        Some(true) => builder.http2_only(),
        Some(false) => builder.http1_only(),
        None => builder,
    };
    let served = builder.serve_connection(TokioIo::new(StallGuard::new(stream, STALL)), service).into_owned();
    let mut served = std::pin::pin!(watcher.watch(served));
    // hyper's own timeout begins with HTTP/1.1; this one covers silence before that, and in HTTP/2.
    tokio::select! {
        result = &mut served => return ended(result),
        () = sleep(header_timeout) => {}
    }
    if began.load(Ordering::Relaxed) {
        ended(served.await);
    }
}

fn ended(result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        // Clients that vanish or send nonsense are daily business.
        tracing::debug!(%error, "connection ended");
    }
}

fn builder(header_timeout: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Without a timer hyper does not look at the timeout.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout).max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(BUFFER_BYTES as u32)
        .max_send_buf_size(BUFFER_BYTES)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10));
    builder
}

/// How many connections each address has.
#[derive(Clone, Default)]
struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection of an address.
struct Place {
    addresses: Addresses,
    address: IpAddr,
}

impl Addresses {
    /// Counts a connection; nothing if the address has `most` already. 0 is no limit.
    fn enter(&self, address: IpAddr, most: usize) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if most > 0 && *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { addresses: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_and_no_more() {
        let addresses = Addresses::default();
        let here: IpAddr = "192.0.2.1".parse().unwrap();
        let first = addresses.enter(here, 2).unwrap();
        let _second = addresses.enter(here, 2).unwrap();
        assert!(addresses.enter(here, 2).is_none());
        assert!(addresses.enter("192.0.2.2".parse().unwrap(), 2).is_some());
        drop(first);
        assert!(addresses.enter(here, 2).is_some());
        assert_eq!(addresses.0.lock().unwrap().len(), 1);
    }
}
