//! Webhooks, and what they are told: noted by whatever ends a job, taken by one at a time, in order.

use std::time::Duration;

use super::{HOUR, LEASE, PATIENCE, World, failure, publication};
use crate::database::{
    Delivery, DeliveryAttempt, DeliveryState, DueDelivery, JobDatabase, Return, WebhookEvent,
};
use crate::error::ErrorKind;
use crate::job::{ArtifactKind, DeliveryId, JobId, Tier, UserId, WebhookId};

const MINUTE: Duration = Duration::from_secs(60);
const URL: &str = "https://a.example/hook";

impl<D: JobDatabase> World<D> {
    fn hook(&self, user: UserId) -> WebhookId {
        let id = WebhookId::random();
        let webhook = self.database.add_webhook(user, id, URL, 10).unwrap();
        assert_eq!((webhook.webhook_id, webhook.url.as_str()), (id, URL));
        id
    }

    fn told(&self, hook: WebhookId) -> Vec<Delivery> {
        self.database.deliveries(self.anna, hook, None, 100).unwrap().unwrap()
    }

    fn events(&self, hook: WebhookId) -> Vec<(JobId, WebhookEvent)> {
        self.told(hook).iter().map(|delivery| (delivery.job_id, delivery.event)).collect()
    }

    fn take_notices(&self) -> Vec<DueDelivery> {
        self.database.take_deliveries(10, MINUTE).unwrap()
    }

    fn note(&self, delivery: DeliveryId, error: Option<&str>, again_after: Option<u64>) {
        let attempt = DeliveryAttempt {
            response_status: Some(if error.is_some() { 500 } else { 200 }),
            error: error.map(str::to_owned),
            again_after: again_after.map(Duration::from_secs),
        };
        self.database.note_delivery(delivery, &attempt).unwrap();
    }

    /// A job of anna's that has ended.
    fn ended(&self) -> JobId {
        let job = self.submit(self.anna);
        self.database.cancel_job(self.anna, job, &failure("cancelled")).unwrap();
        job
    }
}

/// A user's webhooks are that user's alone, and not more than may be.
pub(in crate::database) fn webhooks<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    assert_eq!(d.webhooks(w.anna).unwrap(), []);
    let (first, second) = (w.hook(w.anna), w.hook(w.anna));
    let ids = |user| d.webhooks(user).unwrap().iter().map(|hook| hook.webhook_id).collect::<Vec<_>>();
    assert_eq!((ids(w.anna), ids(w.eve)), (vec![first, second], vec![]));
    let refused = |user, most| d.add_webhook(user, WebhookId::random(), URL, most).unwrap_err().kind();
    assert_eq!((refused(w.anna, 2), refused(w.eve, 0)), (ErrorKind::Conflict, ErrorKind::Conflict));
    assert_eq!(refused(UserId::random(), 2), ErrorKind::NotFound);
    w.ended();
    let delivery = w.told(first)[0].delivery_id;
    // To others they are not there.
    assert!(!d.remove_webhook(w.eve, first).unwrap());
    assert_eq!(d.deliveries(w.eve, first, None, 10).unwrap(), None);
    assert_eq!(d.replay_delivery(w.eve, first, delivery).unwrap(), None);
    assert_eq!(d.replay_delivery(w.anna, second, delivery).unwrap(), None);
    // One that is removed takes what it was told along.
    assert!(d.remove_webhook(w.anna, first).unwrap());
    assert!(!d.remove_webhook(w.anna, first).unwrap());
    assert_eq!(d.deliveries(w.anna, first, None, 10).unwrap(), None);
    assert_eq!(w.take_notices().iter().map(|due| due.webhook_id).collect::<Vec<_>>(), [second]);
}

/// Every way in which a job ends is told to every webhook of its owner, and nothing else is.
pub(in crate::database) fn ends_of_jobs_are_told<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let before = w.ended();
    let (hook, also, foreign) = (w.hook(w.anna), w.hook(w.anna), w.hook(w.eve));
    let mut expected = Vec::new();
    let mut expect = |job, event| {
        expected.insert(0, (job, event));
        assert_eq!(w.events(hook), expected);
    };
    let finished = w.submit(w.anna);
    let lease = w.take();
    assert_eq!(w.told(hook), []);
    d.publish(&lease, &publication()).unwrap();
    d.publish(&lease, &publication()).unwrap();
    expect(finished, WebhookEvent::Finished);
    let told = &w.told(hook)[0];
    assert_eq!((told.status, told.attempts, told.response_status), (DeliveryState::Pending, 0, None));
    assert_eq!(Some(told.created_at), w.job(finished).details.finished_at);

    let failed = w.submit(w.anna);
    d.fail(&w.take(), &failure("too_few_frames"), None).unwrap();
    expect(failed, WebhookEvent::Failed);
    expect(w.ended(), WebhookEvent::Cancelled);
    // Given back until it had its last chance, by the worker or because the worker is gone.
    let crashed = w.submit(w.anna);
    for _ in 0..PATIENCE.crashes {
        w.clock.advance(7200);
        d.release(&w.take(), Return::Crashed(&failure("internal")), &PATIENCE, None).unwrap();
    }
    expect(crashed, WebhookEvent::Failed);
    let disturbed = w.submit(w.anna);
    for _ in 0..PATIENCE.disturbances {
        w.clock.advance(7200);
        w.take();
        w.clock.advance(LEASE as i64 + 1);
        d.reclaim(&|_| true, &PATIENCE).unwrap();
    }
    expect(disturbed, WebhookEvent::Failed);
    // The video is gone, or the scene.
    let lost = w.submit(w.anna);
    d.lose_video(&w.job(lost).details.blob_name, 1, &failure("files_lost")).unwrap();
    expect(lost, WebhookEvent::Failed);
    let missing = w.submit(w.anna);
    d.fail_waiting(&w.job(missing).details.blob_name, 1, &failure("video_missing")).unwrap();
    expect(missing, WebhookEvent::Failed);
    d.lose_artifact(finished, 1, ArtifactKind::Spz, &failure("files_lost")).unwrap();
    d.publish(&w.take(), &publication()).unwrap();
    expect(finished, WebhookEvent::Finished);

    assert_eq!(w.events(also), expected);
    assert_eq!(d.deliveries(w.eve, foreign, None, 10).unwrap().unwrap(), []);
    // A job that is deleted while it runs comes to rest without a word; one that has ended takes its words along.
    w.submit(w.anna);
    let lease = w.take();
    d.mark_deleted(w.anna, lease.job).unwrap();
    d.release(&lease, Return::Unharmed, &PATIENCE, None).unwrap();
    d.mark_deleted(w.anna, failed).unwrap();
    d.mark_deleted(w.anna, before).unwrap();
    expected.retain(|(job, _)| *job != failed);
    assert_eq!(w.events(hook), expected);
    // A copy has them.
    d.release_all().unwrap();
    assert_eq!(w.events(hook), expected);
}

/// One at a time of each webhook, again when nothing was heard of it, later when it failed, and not at all when it was given up.
pub(in crate::database) fn deliveries_are_taken<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    assert_eq!(w.take_notices(), []);
    let (hook, other) = (w.hook(w.anna), w.hook(w.anna));
    let jobs = [w.ended(), w.ended(), w.ended()];
    assert_eq!(d.take_deliveries(1, MINUTE).unwrap().len(), 1);
    let of = |due: &[DueDelivery], hook| due.iter().find(|due| due.webhook_id == hook).cloned();
    // The other webhook's; of the first, one is being worked on.
    assert_eq!(w.take_notices().len(), 1);
    assert_eq!(w.take_notices(), []);
    // Nobody said what became of them.
    w.clock.advance(61);
    let due = w.take_notices();
    let first = of(&due, hook).unwrap();
    assert_eq!((first.job_id, first.user, first.attempts), (jobs[0], w.anna, 0));
    assert_eq!((first.event, first.url.as_str()), (WebhookEvent::Cancelled, URL));
    assert_eq!(of(&due, other).unwrap().job_id, jobs[0]);
    w.note(first.delivery_id, Some("it answered 500"), Some(300));
    let told = w.told(hook).pop().unwrap();
    assert_eq!((told.status, told.attempts, told.response_status), (DeliveryState::Pending, 1, Some(500)));
    assert_eq!(told.error.as_deref(), Some("it answered 500"));
    assert!(told.next_attempt_at.unwrap() > told.last_attempt_at.unwrap());
    // The next does not wait for it.
    let second = of(&w.take_notices(), hook).unwrap();
    assert_eq!(second.job_id, jobs[1]);
    w.note(second.delivery_id, None, None);
    let told = &w.told(hook)[1];
    assert_eq!((told.status, told.next_attempt_at, &told.error), (DeliveryState::Delivered, None, &None));
    // What was delivered stays so.
    w.note(second.delivery_id, Some("late"), None);
    assert_eq!(w.told(hook)[1].status, DeliveryState::Delivered);
    w.clock.advance(301);
    let again = of(&w.take_notices(), hook).unwrap();
    assert_eq!((again.delivery_id, again.attempts), (first.delivery_id, 1));
    w.note(again.delivery_id, Some("gone"), None);
    let told = w.told(hook).pop().unwrap();
    assert_eq!((told.status, told.next_attempt_at), (DeliveryState::Failed, None));
    let third = of(&w.take_notices(), hook).unwrap();
    assert_eq!(third.job_id, jobs[2]);
    w.note(third.delivery_id, None, None);
    assert_eq!(of(&w.take_notices(), hook), None);
    // Once more, as if it had never been tried.
    let replayed = d.replay_delivery(w.anna, hook, first.delivery_id).unwrap().unwrap();
    assert_eq!((replayed.status, replayed.attempts), (DeliveryState::Pending, 0));
    assert!(replayed.next_attempt_at.is_some());
    let again = of(&w.take_notices(), hook).unwrap();
    assert_eq!((again.delivery_id, again.attempts), (first.delivery_id, 0));
    w.note(again.delivery_id, None, None);
    // Who may not use the interface is told nothing.
    w.ended();
    d.set_tier(w.anna, Tier::Free).unwrap();
    assert_eq!(w.take_notices(), []);
    d.set_tier(w.anna, Tier::Enterprise).unwrap();
    assert!(of(&w.take_notices(), hook).is_some());
    // Pages, and what is old.
    let all = w.told(hook);
    let page = |before| d.deliveries(w.anna, hook, before, 2).unwrap().unwrap();
    assert_eq!(page(None), all[..2]);
    assert_eq!(page(Some(all[1].place)), all[2..]);
    assert_eq!(page(Some(all[3].place)), []);
    assert_eq!(d.forget_deliveries(MINUTE).unwrap(), 3);
    assert_eq!(w.told(hook), all[..1]);
    assert_eq!(d.forget_deliveries(MINUTE).unwrap(), 0);
}

/// Of one job nobody hears the second thing before the first, however long that takes.
pub(in crate::database) fn a_job_is_told_in_order<D: JobDatabase>(w: World<D>) {
    let d = &w.database;
    let hook = w.hook(w.anna);
    let job = w.submit(w.anna);
    d.publish(&w.take(), &publication()).unwrap();
    d.lose_artifact(job, 1, ArtifactKind::Ply, &failure("files_lost")).unwrap();
    d.fail(&w.take(), &failure("too_few_frames"), None).unwrap();
    let other = w.ended();
    let take = || {
        let due = w.take_notices();
        assert!(due.len() <= 1);
        due.first().map(|due| (due.delivery_id, due.job_id, due.event))
    };
    let (first, ..) = take().unwrap();
    w.note(first, Some("it answered 503"), Some(600));
    let (id, told, _) = take().unwrap();
    assert_eq!(told, other);
    w.note(id, None, None);
    assert_eq!(take(), None);
    w.clock.advance(601);
    assert_eq!(take(), Some((first, job, WebhookEvent::Finished)));
    w.note(first, None, None);
    assert_eq!(take().map(|(_, job, event)| (job, event)), Some((job, WebhookEvent::Failed)));
    assert_eq!(w.events(hook).len(), 3);
}

/// Nothing waits until then for what was noted, put off or taken by it, once it was set right.
pub(in crate::database) fn deliveries_of_a_clock_that_was_ahead<D: JobDatabase>(w: World<D>) {
    const TWO_DAYS: i64 = 48 * HOUR;
    let (taken, refused, noted) = (w.hook(w.anna), w.hook(w.anna), w.hook(w.eve));
    w.clock.advance(TWO_DAYS);
    w.ended();
    let due = w.take_notices();
    assert_eq!(due.len(), 2);
    let delivery = |hook| due.iter().find(|due| due.webhook_id == hook).unwrap().delivery_id;
    w.note(delivery(refused), Some("it answered 503"), Some(300));
    let job = w.submit(w.eve);
    w.database.cancel_job(w.eve, job, &failure("cancelled")).unwrap();
    w.clock.advance(-TWO_DAYS);
    let take = || {
        let mut hooks: Vec<_> = w.take_notices().iter().map(|due| due.webhook_id).collect();
        hooks.sort();
        hooks
    };
    let mut all = [taken, refused, noted];
    all.sort();
    assert_eq!(take(), all);
    // Who takes it now has the usual time for it, and what is put off now rests for as long as it is to.
    assert_eq!(take(), []);
    let longest = DeliveryAttempt::LONGEST_REST_SECONDS;
    w.note(delivery(refused), Some("it answered 503"), Some(longest));
    w.note(delivery(taken), None, None);
    w.clock.advance(61);
    let again = w.take_notices();
    assert_eq!(again.iter().map(|due| due.webhook_id).collect::<Vec<_>>(), [noted]);
    w.note(again[0].delivery_id, None, None);
    w.clock.advance(longest as i64 - 120);
    assert_eq!(take(), []);
    w.clock.advance(120);
    assert_eq!(take(), [refused]);
}
