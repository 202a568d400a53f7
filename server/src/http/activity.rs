//! What the requests of one connection are doing: whether there is any, and whether each answer that is on its way moves.
//!
//! HTTP/2 has signs of life of its own (pings), which say nothing of the requests: a connection without a request is closed
//! after a while, however lively it is, and so is one on which an answer is not taken.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::body::ResponseBody;

/// An answer of which fewer bytes than this are taken in [`WINDOW`] is given up: 8 KiB a second.
const LEAST_BYTES: u64 = 480 * 1024;
const WINDOW: Duration = Duration::from_secs(60);

/// The requests of one connection.
#[derive(Clone)]
pub(crate) struct Activity(Arc<Mutex<Requests>>);

struct Requests {
    running: HashMap<u64, Phase>,
    begun: u64,
    /// When there last was one; when the connection began, if there was none yet.
    last: Instant,
}

enum Phase {
    /// The request is read and worked on; that has limits of its own.
    Asked,
    /// The answer is on its way: `bytes` were taken since `since`.
    Answered { since: Instant, bytes: u64 },
}

/// What is to be done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Busy,
    /// There has been no request for this long since the connection began.
    NeverAsked(Duration),
    /// There has been no request for this long since the last.
    IdleFor(Duration),
    /// The client does not take an answer.
    Stuck,
}

/// A request, until its answer has been handed over whole.
pub(crate) struct Running {
    activity: Activity,
    number: u64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        let requests = Requests { running: HashMap::new(), begun: 0, last: Instant::now() };
        Self(Arc::new(Mutex::new(requests)))
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins.
    pub(crate) fn begin(&self) -> Running {
        let mut requests = self.requests();
        let number = requests.begun;
        requests.begun += 1;
        requests.running.insert(number, Phase::Asked);
        Running { activity: self.clone(), number }
    }

    /// Looks at all requests.
    pub(crate) fn look(&self) -> Verdict {
        let now = Instant::now();
        let mut requests = self.requests();
        if requests.running.is_empty() {
            let time = now - requests.last;
            return if requests.begun == 0 { Verdict::NeverAsked(time) } else { Verdict::IdleFor(time) };
        }
        for phase in requests.running.values_mut() {
            let Phase::Answered { since, bytes } = phase else { continue };
            if now - *since >= WINDOW {
                if *bytes < LEAST_BYTES {
                    return Verdict::Stuck;
                }
                (*since, *bytes) = (now, 0);
            }
        }
        Verdict::Busy
    }
}

impl Running {
    /// The answer begins; it is watched while it is taken.
    pub(crate) fn answer(self, body: ResponseBody) -> WatchedBody {
        let phase = Phase::Answered { since: Instant::now(), bytes: 0 };
        self.activity.requests().running.insert(self.number, phase);
        WatchedBody { body, running: self }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut requests = self.activity.requests();
        requests.running.remove(&self.number);
        requests.last = Instant::now();
    }
}

/// The body of an answer that is watched.
pub(crate) struct WatchedBody {
    body: ResponseBody,
    running: Running,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let taken = frame.data_ref().map_or(0, |data| data.len() as u64);
            let mut requests = this.running.activity.requests();
            if let Some(Phase::Answered { bytes, .. }) = requests.running.get_mut(&this.running.number) {
                *bytes += taken;
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::sync::mpsc;
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_while_it_has_no_request() {
        let activity = Activity::new();
        advance(3 * SECOND).await;
        assert_eq!(activity.look(), Verdict::NeverAsked(3 * SECOND));
        let running = activity.begin();
        advance(1000 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Busy);
        let body = running.answer(ResponseBody::from("done".to_owned()));
        assert_eq!(activity.look(), Verdict::Busy);
        drop(body);
        advance(2 * SECOND).await;
        assert_eq!(activity.look(), Verdict::IdleFor(2 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_trickles_is_given_up_and_a_slow_one_is_not() {
        let activity = Activity::new();
        let (sender, chunks) = mpsc::channel(1);
        let mut body = activity.begin().answer(ResponseBody::Stream { chunks, remaining: None });
        for _ in 0..3 {
            for _ in 0..60 {
                sender.send(Ok(vec![0; 9 * 1024].into())).await.unwrap();
                body.frame().await.unwrap().unwrap();
                advance(SECOND).await;
            }
            assert_eq!(activity.look(), Verdict::Busy);
        }
        sender.send(Ok(vec![0; 9 * 1024].into())).await.unwrap();
        body.frame().await.unwrap().unwrap();
        advance(60 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Stuck);
    }
}
