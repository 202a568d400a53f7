//! Where a worker can be asked how it is: `/metrics` for Prometheus, `/healthz` for what restarts it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use libreconstruct::service::Service;
use libreconstruct::{Error, ErrorKind, Result};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections at a time: one for Prometheus, some for who looks by hand.
const CONNECTIONS: usize = 8;
/// How long a client may take to ask.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection lives no longer: nobody keeps the others out.
const LONGEST: Duration = Duration::from_secs(30);

/// Answers on `address` from now on, on a thread of its own. Returns the address that was taken: port 0 takes a free one.
///
/// # Errors
/// [`ErrorKind::Io`] if the address cannot be taken.
pub(crate) fn start(address: SocketAddr, handle: PrometheusHandle, service: Service) -> Result<SocketAddr> {
    let cannot = |e: std::io::Error| {
        Error::new(ErrorKind::Io, format!("cannot listen on {address} for metrics: {e}"))
            .hint("choose another address with --metrics-listen; port 0 takes a free one")
            .caused_by(e)
    };
    let listener = std::net::TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let taken = listener.local_addr().map_err(cannot)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let work = move || runtime.block_on(serve(listener, handle, service));
    std::thread::Builder::new().name("metrics".into()).spawn(work).map_err(cannot)?;
    Ok(taken)
}

async fn serve(listener: std::net::TcpListener, handle: PrometheusHandle, service: Service) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "metrics cannot be served"),
    };
    let places = std::sync::Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Too many open files: it passes.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (handle, service) = (handle.clone(), service.clone());
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let response = answer(&request, &handle, &service);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), answer);
            // A client that goes away is no trouble.
            let _ = tokio::time::timeout(LONGEST, connection).await;
            drop(place);
        });
    }
}

fn answer<B>(request: &Request<B>, handle: &PrometheusHandle, service: &Service) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            metrics::gauge!("reconstruct_workers_paused").set(service.paused_workers().len() as f64);
            handle.run_upkeep();
            (StatusCode::OK, handle.render())
        }
        (&Method::GET, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there are /metrics and /healthz here\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
