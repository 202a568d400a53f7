//! Accepts connections, within limits, until it is told to stop; then lets requests finish.
//!
//! Every connection is one task. A slow client costs that task and a little memory, never a thread, and is cut: its
//! handshake and every request head must arrive within the header timeout, bodies have limits of their own, an answer must
//! keep moving, and a connection without a request is closed, the sooner the fewer places there are.
//!
//! No pings are sent. Their answers would say nothing that is not known: whether answers arrive is seen (`activity`), and whoever has
//! vanished takes none, a stream of events ends after minutes by itself, and then the connection is without a request. But a ping waits
//! behind all that is on its way already, and a client with a slow line that takes a file as fast as it can would be cut for that.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::activity::{Activity, Verdict};
use super::answer;
use super::api::Api;
use super::client::Connection;
use super::ending::Ending;
use super::pace::LEAST_RATE;
use super::places::{Place, Places};
use super::socket::SendQueue;
use super::stall::StallGuard;
use super::tls::Tls;
use super::traffic::Traffic;

/// Requests that run when the server is told to stop may take this long.
const FINISH_WITHIN: Duration = Duration::from_secs(10);
/// An answer that has waited this long for its client, in all, must have moved by [`LEAST_BYTES`], or is given up.
const STALL: Duration = Duration::from_secs(60);
const LEAST_BYTES: u64 = 60 * 1024;
/// How often the requests of a connection are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The longest that a connection that was told to end may stay without a request.
const LONGEST: Duration = Duration::from_secs(3600);
/// How many header timeouts a connection without a request that was told to end may take for what it still has to send; as many more
/// while it is taken as fast as it has to be.
const LAST_TIMEOUTS: u32 = 3;
/// Largest head of a request, and the read buffer of a connection.
const BUFFER_BYTES: usize = 64 * 1024;
/// Memory that one HTTP/2 connection may fill with bodies that are not yet read.
const WINDOW_BYTES: u32 = 1 << 20;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 64;
/// Connections that are told at once that there is no place for them; more are just closed.
const REFUSALS: usize = 64;
/// What they are told, without TLS.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n\
    Content-Length: 26\r\nConnection: close\r\n\r\n{\"error\":\"Server is busy\"}";

/// Serves until `stop` becomes true and requests have ended, or [`FINISH_WITHIN`] has passed.
pub(crate) async fn serve(
    listener: TcpListener,
    api: Arc<Api>,
    tls: Option<Arc<Tls>>,
    mut stop: watch::Receiver<bool>,
) {
    let limits = &api.config().connections;
    let places = Places::new(limits.max_connections, limits.max_connections_per_address);
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let proxies = api.config().trusted_proxies.clone();
    // Every connection holds a sender: the receiver hears when the last is gone.
    let (open, mut all_closed) = mpsc::channel::<Infallible>(1);
    loop {
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
        let Some(place) = places.enter(address, proxies.contains(&address)) else {
            metrics::counter!("reconstruct_connections_refused_total").increment(1);
            // Who probes the server learns at once that it is busy, and does not hang.
            if tls.is_none()
                && let Ok(permit) = refusals.clone().try_acquire_owned()
            {
                tokio::spawn(async move {
                    refuse(stream).await;
                    drop(permit);
                });
            }
            continue;
        };
        let guards = Guards { place, _open: open.clone() };
        tokio::spawn(accept(api.clone(), stream, tls.clone(), stop.clone(), guards));
    }
    drop((listener, open));
    if timeout(FINISH_WITHIN, all_closed.recv()).await.is_err() {
        tracing::warn!("some requests did not end in time and are cut");
    }
}

/// Says that there is no place. What the client sends meanwhile is read: if the connection were closed on it, the client
/// might not get the answer.
async fn refuse(mut stream: TcpStream) {
    let say = async {
        stream.write_all(REFUSAL).await?;
        stream.shutdown().await?;
        let mut unread = [0; 4096];
        while stream.read(&mut unread).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = timeout(Duration::from_secs(1), say).await;
}

/// What a connection holds while it lasts.
struct Guards {
    place: Place,
    _open: mpsc::Sender<Infallible>,
}

async fn accept(
    api: Arc<Api>,
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    stop: watch::Receiver<bool>,
    guards: Guards,
) {
    let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
    let _ = stream.set_nodelay(true);
    let queue = SendQueue::of(&stream);
    let connection = Connection { peer, local, tls: tls.is_some() };
    metrics::gauge!("reconstruct_connections").increment(1.0);
    match tls {
        None => {
            let h2 = if api.config().h2c { None } else { Some(false) };
            handle(&api, stream, connection, h2, queue, &guards.place, stop).await;
        }
        Some(tls) => {
            let handshake = tls.acceptor().accept(stream);
            if let Ok(Ok(stream)) = timeout(api.config().connections.header_timeout(), handshake).await {
                let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                handle(&api, stream, connection, Some(h2), queue, &guards.place, stop).await;
            }
        }
    }
    metrics::gauge!("reconstruct_connections").decrement(1.0);
    drop(guards);
}

/// Speaks HTTP/2 or HTTP/1.1 as `h2` says, or what the client begins with where that is not known. `queue` is that of the socket under
/// `stream`, which is open until this returns.
async fn handle<S>(
    api: &Arc<Api>,
    stream: S,
    connection: Connection,
    h2: Option<bool>,
    queue: SendQueue,
    place: &Place,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &api.config().connections;
    let (header_timeout, idle_timeout) = (limits.header_timeout(), limits.idle_timeout());
    let traffic = Traffic::new(h2, queue);
    let stream = StallGuard::new(stream, traffic.clone(), STALL, LEAST_BYTES);
    let activity = Activity::new(traffic.clone());
    let (began, max_age) = (Instant::now(), limits.max_age());
    let service = {
        let (api, activity, traffic) = (api.clone(), activity.clone(), traffic.clone());
        service_fn(move |request: Request<Incoming>| {
            let brings_body = !request.body().is_end_stream();
            traffic.request_begins(brings_body);
            // Of a request that only reads, nobody reads a body.
            let has_body = brings_body && !request.method().is_safe();
            let is_http2 = request.version() == Version::HTTP_2;
            let (api, running) = (api.clone(), activity.begin(has_body));
            async move {
                let mut response = answer::answer(&api, connection, request).await;
                // Who has no other way to hear that the connection ends might send the next request just then, and lose it.
                if !is_http2 && (began.elapsed() >= max_age || api.is_stopping()) {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response.map(|body| running.answer(body)))
            }
        })
    };
    let builder = builder(idle_timeout + header_timeout);
    let builder = match h2 {
        Some(true) => builder.http2_only(),
        Some(false) => builder.http1_only(),
        None => builder,
    };
    let served = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    let mut served = std::pin::pin!(served);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let last = LAST_TIMEOUTS * header_timeout;
    let least = (LEAST_RATE * last.as_secs()).max(1);
    let mut ending: Option<Ending> = None;
    loop {
        // No verdict: the server stops.
        let verdict = tokio::select! {
            result = served.as_mut() => return ended(result),
            _ = stop.wait_for(|stop| *stop), if ending.is_none() => None,
            _ = look.tick() => Some(activity.look()),
        };
        let end = match verdict {
            None | Some(Verdict::Warned) => true,
            Some(Verdict::Stuck) => return tracing::debug!("a client does not take its answers"),
            Some(Verdict::NeverAsked(time) | Verdict::HeadFor(time)) if time >= header_timeout => return,
            Some(Verdict::IdleFor(time)) if time >= idle_timeout => true,
            Some(Verdict::IdleFor(time)) if time >= header_timeout && place.is_scarce() => true,
            Some(Verdict::Busy | Verdict::IdleFor(_) | Verdict::NeverAsked(_) | Verdict::HeadFor(_)) => {
                // Who comes back is counted anew. HTTP/1.1 is told with its next answer.
                traffic.is_http2() && began.elapsed() >= max_age
            }
        };
        if let Some(ending) = &mut ending {
            let is_busy = matches!(verdict, Some(Verdict::Busy | Verdict::Warned));
            let busy = is_busy.then(|| activity.ahead());
            if ending.is_over(Instant::now(), busy, traffic.answers_arrived()) {
                return;
            }
        } else if end {
            // A client that is not silent is told; requests that have begun may end.
            served.as_mut().graceful_shutdown();
            let arrived = traffic.answers_arrived();
            ending = Some(Ending::begin(last, least, LONGEST, Instant::now(), arrived, activity.ahead()));
        }
    }
}

fn ended(result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        // Clients that vanish or send nonsense are daily business.
        tracing::debug!(%error, "connection ended");
    }
}

/// `longest`: how long an HTTP/1.1 connection may take from one request to the end of the next head. That is for what hyper alone knows
/// of: the part of a head that came with the request before it.
fn builder(longest: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Without a timer hyper does not look at the timeout.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(longest).max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(BUFFER_BYTES as u32)
        .max_send_buf_size(BUFFER_BYTES);
    builder
}
