//! Tells the addresses of users what has happened to their jobs. Any number of servers may do it at once: each thing that is to be
//! told is given to one of them.

use std::sync::Arc;
use std::time::Duration;

use libreconstruct::service::{Notice, Told};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::http::api::Api;
use crate::http::job_value::job_value;
use crate::webhook::sender::Sender;

/// How often it is looked whether there is anything to tell.
const LOOK: Duration = Duration::from_secs(1);
/// So many addresses are told at once: those that hang must not keep the others from being told.
const AT_ONCE: usize = 64;
/// A server that stops waits so long for answers. What is not answered by then is told once more, by the next server.
const STOPS_WITHIN: Duration = Duration::from_secs(2);

/// Tells what is to be told until the server stops.
pub(super) async fn deliver(api: Arc<Api>, mut stopped: watch::Receiver<bool>) {
    let settings = &api.config().webhooks;
    if settings.max_per_user == 0 {
        return;
    }
    let sender = match Sender::new(settings) {
        Ok(sender) => sender,
        Err(error) => return tracing::error!(%error, "webhooks are told nothing"),
    };
    let mut under_way = JoinSet::new();
    loop {
        let free = AT_ONCE.saturating_sub(under_way.len());
        if free > 0 {
            for notice in take(&api, free).await {
                under_way.spawn(tell(api.clone(), sender.clone(), notice));
            }
        }
        tokio::select! {
            // Its address may be told the next thing.
            Some(_) = under_way.join_next() => {}
            () = sleep(LOOK) => {}
            _ = stopped.wait_for(|stop| *stop) => break,
        }
    }
    let rest = async { while under_way.join_next().await.is_some() {} };
    let _ = timeout(STOPS_WITHIN, rest).await;
}

async fn take(api: &Arc<Api>, most: usize) -> Vec<Notice> {
    let service = api.service().clone();
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    match spawn_blocking(move || service.take_notices(most)).await {
        Ok(Ok(notices)) => notices,
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot look what webhooks are to be told; it is tried again");
            Vec::new()
        }
        Err(error) => {
            tracing::error!(%error, "cannot look what webhooks are to be told; it is tried again");
            Vec::new()
        }
    }
}

/// Tells one address one thing, and notes what became of it.
async fn tell(api: Arc<Api>, sender: Sender, notice: Notice) {
    let delivery = &notice.delivery;
    // Rule 94 of docs/rest.md.
    let body = job_value(api.config(), &notice.job).map(|job| {
        json!({ "type": delivery.event, "timestamp": delivery.created_at, "data": job }).to_string()
    });
    let told = match body {
        Ok(body) => sender.tell(&notice, body.into_bytes()).await,
        Err(error) => {
            let why = "this server cannot write down the job".to_owned();
            tracing::error!(delivery = %delivery.delivery_id, detail = error.detail, "{why}");
            Told::Refused { status: None, why, for_good: false }
        }
    };
    let (outcome, why) = match &told {
        Told::Taken { .. } => ("taken", None),
        Told::Refused { why, .. } => ("refused", Some(why.as_str())),
    };
    metrics::counter!("reconstruct_webhook_attempts_total", "outcome" => outcome).increment(1);
    tracing::info!(
        target: "webhooks", webhook = %delivery.webhook_id, delivery = %delivery.delivery_id, job = %delivery.job_id,
        user = %delivery.user, outcome, why, "told"
    );
    let (service, delivery) = (api.service().clone(), delivery.clone());
    match spawn_blocking(move || service.note_delivery(&delivery, told)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "what a webhook was told cannot be noted; it is told again"),
        Err(error) => tracing::error!(%error, "what a webhook was told cannot be noted; it is told again"),
    }
}
