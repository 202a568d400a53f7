//! What the requests of one connection are doing: whether there is any, and whether the answers that are on their way move.
//!
//! HTTP/2 has signs of life of its own (pings), which say nothing of the requests: a connection without a request is closed
//! after a while, however lively it is, and so is one whose answers are not taken. Only the time counts in which there was
//! something to take: a stream of events is silent for long, and a storage that stands still is not its client's fault.
//!
//! The answers are judged together, by what has arrived at the other end: what is handed over may lie in memory, here or in the kernel. A
//! proxy sends the requests of many people on one connection, and who does not take an answer must not end those of all others. So a client
//! that takes one answer as slowly as it may can let all others of its connection lie for as long as that one lasts. What they fill does
//! not grow with the time that they lie: a connection has so many requests at once and no more (`listener`), each of them three chunks of a
//! file in memory at most (`download`), and of files all connections together have no more than there are places, of which one network has
//! a share (`downloads`). So it is with the bytes of all other answers (`bodies`), but for those that are very small, or in memory once for
//! all. After an hour such a connection gets no new requests, and ends with the answer that it takes.
//!
//! Of HTTP/2 the last piece of an answer, 64 KiB at most, is handed over whole as soon as its client would take one byte. Then the
//! request is done as far as is known here, and however long the piece lies, it is judged no more. It goes on filling its share of memory
//! and being one of the requests that its connection may have at once. With no other request the connection ends as an idle one does.
//!
//! Where too little is taken of all that is offered, there may be others that have nothing to give, such as streams of events: they did no
//! wrong. Then the connection first takes no new requests, so that a proxy opens another one, and is given up when still too little is taken.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::body::ResponseBody;
use super::pace::{LEAST_RATE, Pace};
use super::traffic::Traffic;

/// A connection of whose answers fewer bytes than this are taken, in [`WINDOW`] of offering them, is given up.
const LEAST_BYTES: u64 = LEAST_RATE * WINDOW.as_secs();
const WINDOW: Duration = Duration::from_secs(60);

/// The requests of one connection.
#[derive(Clone)]
pub(crate) struct Activity(Arc<Mutex<Requests>>);

struct Requests {
    running: HashMap<u64, Phase>,
    begun: u64,
    traffic: Traffic,
    /// When there last was one; when the connection began, if there was none yet.
    last: Instant,
    offer: Offer,
    /// Whether it was said already that too little is taken.
    is_warned: bool,
}

enum Phase {
    /// The request is read and worked on; that has limits of its own. It brings a body or not.
    Asked { has_body: bool },
    /// The answer is on its way. There is something of it to take, or it waits for more itself.
    Answered { is_offered: bool },
}

impl Requests {
    /// Takes note of whether there is anything to take at all.
    fn settle(&mut self, now: Instant) {
        if self.running.values().any(|phase| matches!(phase, Phase::Answered { is_offered: true })) {
            self.offer.since.get_or_insert(now);
        } else {
            self.offer.pause(now);
        }
    }
}

/// How the answers of a connection are taken, all together.
struct Offer {
    /// Since when there is something to take; none while there is nothing.
    since: Option<Instant>,
    /// How long there was something to take before that.
    before: Duration,
    pace: Pace,
}

impl Offer {
    /// Nothing is offered yet; `arrived` bytes of answers have arrived before.
    fn new(arrived: u64) -> Self {
        Self { since: None, before: Duration::ZERO, pace: Pace::new(LEAST_BYTES, arrived, 0) }
    }

    /// For how long something was offered.
    fn time(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now - since)
    }

    /// From now on there is nothing to take.
    fn pause(&mut self, now: Instant) {
        (self.before, self.since) = (self.time(now), None);
    }
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
    /// There is no request, and for this long a part of the head of one.
    HeadFor(Duration),
    /// The client does not take its answers, and there are requests that have none for it yet: they may end.
    Warned,
    /// The client does not take its answers.
    Stuck,
}

/// A request, until its answer has been handed over whole.
pub(crate) struct Running {
    activity: Activity,
    number: u64,
}

impl Activity {
    /// Of a new connection, over which `traffic` goes.
    pub(crate) fn new(traffic: Traffic) -> Self {
        Self(Arc::new(Mutex::new(Requests {
            running: HashMap::new(),
            begun: 0,
            traffic,
            last: Instant::now(),
            offer: Offer::new(0),
            is_warned: false,
        })))
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins, with a body that is read or without one.
    pub(crate) fn begin(&self, has_body: bool) -> Running {
        let mut requests = self.requests();
        if requests.running.is_empty() {
            // All that was asked for before is taken: the next answers have their whole time again.
            requests.offer = Offer::new(requests.traffic.answers_arrived());
        }
        let number = requests.begun;
        requests.begun += 1;
        requests.running.insert(number, Phase::Asked { has_body });
        Running { activity: self.clone(), number }
    }

    /// Looks at all requests.
    pub(crate) fn look(&self) -> Verdict {
        let now = Instant::now();
        let mut requests = self.requests();
        if requests.running.is_empty() {
            let time = now - requests.last;
            return match requests.traffic.head_since() {
                _ if requests.begun == 0 => Verdict::NeverAsked(time),
                Some(since) => Verdict::HeadFor(now.saturating_duration_since(since)),
                None => Verdict::IdleFor(time),
            };
        }
        if requests.offer.time(now) >= WINDOW {
            let arrived = requests.traffic.answers_arrived();
            // A request that is still received, such as an upload, keeps to a pace of its own, and must not end for an answer.
            let is_receiving =
                requests.running.values().any(|phase| matches!(phase, Phase::Asked { has_body: true }));
            let takes_too_little = !requests.offer.pace.is_kept(arrived) && !is_receiving;
            let is_offered = |phase: &Phase| matches!(phase, Phase::Answered { is_offered: true });
            if takes_too_little && (requests.is_warned || requests.running.values().all(is_offered)) {
                return Verdict::Stuck;
            }
            requests.offer.since = requests.offer.since.map(|_| now);
            requests.offer.before = Duration::ZERO;
            if takes_too_little {
                requests.is_warned = true;
                return Verdict::Warned;
            }
        }
        Verdict::Busy
    }

    /// By how many bytes the client is ahead with the answers that it was offered.
    pub(crate) fn ahead(&self) -> u64 {
        let requests = self.requests();
        let due = LEAST_RATE * requests.offer.time(Instant::now()).as_secs();
        requests.offer.pace.ahead(requests.traffic.answers_arrived(), due)
    }

    /// Takes note of whether there is more of the answer of a request.
    fn note(&self, number: u64, is_offered: bool) {
        let mut requests = self.requests();
        let Some(Phase::Answered { is_offered: noted }) = requests.running.get_mut(&number) else { return };
        *noted = is_offered;
        requests.settle(Instant::now());
    }
}

impl Running {
    /// The answer begins; it is watched while it is taken.
    pub(crate) fn answer(self, body: ResponseBody) -> WatchedBody {
        let mut requests = self.activity.requests();
        requests.running.insert(self.number, Phase::Answered { is_offered: true });
        requests.settle(Instant::now());
        drop(requests);
        let more =
            Arc::new(More { activity: self.activity.clone(), number: self.number, taker: Mutex::default() });
        WatchedBody { body, waker: Waker::from(more.clone()), more, running: self }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut requests = self.activity.requests();
        requests.running.remove(&self.number);
        requests.last = now;
        requests.settle(now);
        if requests.running.is_empty() {
            requests.traffic.requests_end();
        }
    }
}

/// The body of an answer that is watched.
pub(crate) struct WatchedBody {
    body: ResponseBody,
    /// Woken by the body when it has more; the same as `waker`.
    more: Arc<More>,
    waker: Waker,
    running: Running,
}

/// Notes that an answer that waited has more to give, and tells who takes it. The moment counts at which there is something, not
/// that at which it is asked for: who does not take it does not ask.
struct More {
    activity: Activity,
    number: u64,
    taker: Mutex<Option<Waker>>,
}

impl More {
    fn taker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.taker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for More {
    fn wake(self: Arc<Self>) {
        self.activity.note(self.number, true);
        let taker = self.taker().take();
        if let Some(taker) = taker {
            taker.wake();
        }
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let Running { activity, number } = &this.running;
        *this.more.taker() = Some(context.waker().clone());
        // Before it is asked, so that it can say in the same moment that there is more.
        activity.note(*number, false);
        let polled = Pin::new(&mut this.body).poll_frame(&mut Context::from_waker(&this.waker));
        if polled.is_ready() {
            activity.note(*number, true);
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
    use crate::http::frames::frame;
    use crate::http::socket::SendQueue;

    const SECOND: Duration = Duration::from_secs(1);

    /// The requests of a connection, and what goes over it.
    fn activity() -> (Activity, Traffic) {
        let traffic = Traffic::new(Some(false), SendQueue::default());
        (Activity::new(traffic.clone()), traffic)
    }

    /// So many bytes leave.
    fn send(traffic: &Traffic, count: usize) {
        traffic.sent([&vec![0; count][..]], count);
    }

    /// One frame is asked for, and leaves.
    async fn take(body: &mut WatchedBody, traffic: &Traffic) {
        let frame = body.frame().await.unwrap().unwrap();
        send(traffic, frame.into_data().unwrap().len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_while_it_has_no_request() {
        let (activity, _) = activity();
        advance(3 * SECOND).await;
        assert_eq!(activity.look(), Verdict::NeverAsked(3 * SECOND));
        let running = activity.begin(false);
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
        let (activity, traffic) = activity();
        let (sender, chunks) = mpsc::channel(1);
        let mut body = activity.begin(false).answer(ResponseBody::Stream { chunks, remaining: None });
        for _ in 0..3 {
            for _ in 0..60 {
                sender.send(Ok(vec![0; 9 * 1024].into())).await.unwrap();
                take(&mut body, &traffic).await;
                advance(SECOND).await;
            }
            assert_eq!(activity.look(), Verdict::Busy);
        }
        sender.send(Ok(vec![0; 9 * 1024].into())).await.unwrap();
        take(&mut body, &traffic).await;
        advance(60 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Stuck);
    }

    /// Behind a proxy the others are those of other people.
    #[tokio::test(start_paused = true)]
    async fn rule_91_an_answer_that_is_not_taken_ends_no_other() {
        let (activity, traffic) = activity();
        let (sender, chunks) = mpsc::channel(1);
        let mut taken = activity.begin(false).answer(ResponseBody::Stream { chunks, remaining: None });
        let _lies = activity.begin(false).answer(ResponseBody::from("nobody wants it".to_owned()));
        for _ in 0..180 {
            sender.send(Ok(vec![0; 9 * 1024].into())).await.unwrap();
            take(&mut taken, &traffic).await;
            advance(SECOND).await;
            assert_eq!(activity.look(), Verdict::Busy);
        }
        // Alone it is waited for no longer than any.
        drop((taken, sender));
        advance(60 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Stuck);
    }

    #[tokio::test(start_paused = true)]
    async fn rule_91_a_connection_of_which_no_answer_is_taken_is_given_up() {
        let (activity, _) = activity();
        let answer = |text: &str| activity.begin(false).answer(ResponseBody::from(text.to_owned()));
        let _both = (answer("one"), answer("another"));
        for _ in 0..59 {
            advance(SECOND).await;
            assert_eq!(activity.look(), Verdict::Busy);
        }
        advance(SECOND).await;
        assert_eq!(activity.look(), Verdict::Stuck);
    }

    #[tokio::test(start_paused = true)]
    async fn rule_91_a_request_that_is_still_received_is_ended_by_no_answer() {
        let (activity, _) = activity();
        let _lies = activity.begin(false).answer(ResponseBody::from("nobody wants it".to_owned()));
        let upload = activity.begin(true);
        for _ in 0..180 {
            advance(SECOND).await;
            assert_eq!(activity.look(), Verdict::Busy);
        }
        drop(upload);
        // Its own answer has time to leave.
        advance(59 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Busy);
        advance(SECOND).await;
        assert_eq!(activity.look(), Verdict::Stuck);
    }

    /// A request that waits for a change receives nothing.
    #[tokio::test(start_paused = true)]
    async fn rule_91_what_waits_itself_is_told_first_and_then_ended() {
        let (activity, traffic) = activity();
        let lies = activity.begin(false).answer(ResponseBody::from("nobody wants it".to_owned()));
        let (_sender, chunks) = mpsc::channel(1);
        let mut events = activity.begin(false).answer(ResponseBody::Stream { chunks, remaining: None });
        assert!(!is_offered(&mut events).await);
        let waits = activity.begin(false);
        advance(59 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Busy);
        advance(SECOND).await;
        assert_eq!(activity.look(), Verdict::Warned);
        for _ in 0..59 {
            advance(SECOND).await;
            assert_eq!(activity.look(), Verdict::Busy);
        }
        // It goes on as long as something is taken, but there is no second warning.
        send(&traffic, LEAST_BYTES as usize);
        advance(SECOND).await;
        assert_eq!(activity.look(), Verdict::Busy);
        advance(60 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Stuck);
        drop((lies, events, waits));
    }

    /// hyper asks for the first frame of an answer before there is room for it.
    #[tokio::test(start_paused = true)]
    async fn rule_91_what_is_asked_for_and_not_sent_is_not_taken() {
        let (activity, traffic) = activity();
        let mut answers = Vec::new();
        for _ in 0..60 {
            let mut answer = activity.begin(false).answer(ResponseBody::from(vec![0_u8; 64 * 1024]));
            answer.frame().await.unwrap().unwrap();
            answers.push(answer);
            // A ping.
            send(&traffic, 17);
            advance(SECOND).await;
        }
        assert_eq!(activity.look(), Verdict::Stuck);
    }

    /// A client has as many of them answered as it likes.
    #[tokio::test(start_paused = true)]
    async fn rule_91_answers_to_pings_are_no_answers_that_are_taken() {
        let traffic = Traffic::new(Some(true), SendQueue::default());
        let activity = Activity::new(traffic.clone());
        let _lies = activity.begin(false).answer(ResponseBody::from("nobody wants it".to_owned()));
        let pong = frame(6, 1, &[0; 8]);
        for _ in 0..60 {
            for _ in 0..1000 {
                traffic.sent([&pong[..]], pong.len());
            }
            advance(SECOND).await;
        }
        assert_eq!(activity.look(), Verdict::Stuck);
    }

    #[tokio::test(start_paused = true)]
    async fn rule_91_a_head_that_has_begun_is_no_silence() {
        let (activity, traffic) = activity();
        traffic.received(b"GET / HTTP/1.1\r\n");
        advance(SECOND).await;
        assert_eq!(activity.look(), Verdict::NeverAsked(SECOND));
        traffic.request_begins(false);
        let running = activity.begin(false);
        traffic.received(b"GET / HT");
        advance(100 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Busy);
        // What has come of the next request was not waited for until now.
        drop(running);
        advance(2 * SECOND).await;
        assert_eq!(activity.look(), Verdict::HeadFor(2 * SECOND));
        traffic.request_begins(false);
        drop(activity.begin(false));
        advance(3 * SECOND).await;
        assert_eq!(activity.look(), Verdict::IdleFor(3 * SECOND));
    }

    /// Its kernel has taken what it has room for, and says that there is room again when a sixteenth is free.
    #[tokio::test(start_paused = true)]
    async fn rule_91_who_takes_enough_in_large_steps_is_waited_for() {
        let (activity, traffic) = activity();
        let _taken = activity.begin(false).answer(ResponseBody::from("more of it".to_owned()));
        let (step, rate) = (384 << 10, LEAST_RATE as usize);
        send(&traffic, 16 * step);
        for second in 1..3600 {
            advance(SECOND).await;
            // It is read at the least rate, and told of in steps.
            if second * rate % step < rate {
                send(&traffic, step);
            }
            assert_eq!(activity.look(), Verdict::Busy, "{second} s");
            assert!(activity.ahead() <= LEAST_BYTES);
        }
        advance(120 * SECOND).await;
        let mut verdicts = [Verdict::Busy; 3];
        for verdict in &mut verdicts {
            *verdict = activity.look();
            advance(60 * SECOND).await;
        }
        assert!(verdicts.contains(&Verdict::Stuck), "{verdicts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_sent_before_a_request_is_not_what_it_takes() {
        let (activity, traffic) = activity();
        drop(activity.begin(false));
        send(&traffic, LEAST_BYTES as usize);
        let _lies = activity.begin(false).answer(ResponseBody::from("nobody wants it".to_owned()));
        advance(60 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Stuck);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_one_after_the_other_have_their_time_each() {
        let (activity, _) = activity();
        for _ in 0..5 {
            let answer = activity.begin(false).answer(ResponseBody::from("slow".to_owned()));
            advance(40 * SECOND).await;
            assert_eq!(activity.look(), Verdict::Busy);
            drop(answer);
        }
    }

    /// Looks at the body once; says whether there was something.
    async fn is_offered(body: &mut WatchedBody) -> bool {
        tokio::time::timeout(Duration::ZERO, body.frame()).await.is_ok()
    }

    /// Rule 86 of docs/rest.md: a stream of events lasts for five minutes.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_has_nothing_to_give_is_waited_for() {
        let (activity, _) = activity();
        let (sender, chunks) = mpsc::channel(1);
        let mut body = activity.begin(false).answer(ResponseBody::Stream { chunks, remaining: None });
        for _ in 0..20 {
            assert!(!is_offered(&mut body).await);
            for _ in 0..15 {
                advance(SECOND).await;
                assert_eq!(activity.look(), Verdict::Busy);
            }
            sender.send(Ok(":\n\n".into())).await.unwrap();
            assert!(is_offered(&mut body).await);
        }
        assert!(!is_offered(&mut body).await);
        advance(300 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Busy);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_and_not_taken_counts_from_the_moment_at_which_it_is_there() {
        let (activity, _) = activity();
        let (sender, chunks) = mpsc::channel(1);
        let mut body = activity.begin(false).answer(ResponseBody::Stream { chunks, remaining: None });
        assert!(!is_offered(&mut body).await);
        advance(300 * SECOND).await;
        // Nobody asks for it any more.
        sender.send(Ok(":\n\n".into())).await.unwrap();
        advance(59 * SECOND).await;
        assert_eq!(activity.look(), Verdict::Busy);
        advance(SECOND).await;
        assert_eq!(activity.look(), Verdict::Stuck);
    }

    /// Else a client would be waited for as long as it asks once in a minute.
    #[tokio::test(start_paused = true)]
    async fn short_waits_for_more_do_not_make_a_trickle_faster() {
        let (activity, traffic) = activity();
        let (sender, chunks) = mpsc::channel(1);
        let mut body = activity.begin(false).answer(ResponseBody::Stream { chunks, remaining: None });
        for _ in 0..60 {
            assert!(!is_offered(&mut body).await);
            sender.send(Ok(vec![0; 7 * 1024].into())).await.unwrap();
            advance(SECOND).await;
            take(&mut body, &traffic).await;
        }
        assert_eq!(activity.look(), Verdict::Stuck);
    }
}
