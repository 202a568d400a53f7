//! The web application (rule 79 of docs/rest.md): pages on which users sign in, make and revoke keys, and see their scenes.
//!
//! It is beside the interface, not above it: pages take the session of a cookie and nothing else, `/api/v1` takes keys and nothing
//! else. All but the sending of videos works without a script; other scripts only bring a page up to date.

mod assets;
mod browser;
mod company;
mod form;
mod new_scene;
mod page;
mod passkeys;
mod profile;
mod route;
mod scene;
mod scene_actions;
mod scene_options;
mod scenes;
mod session;
mod sign_in;
mod sign_in_page;
mod words;

use hyper::body::Incoming;
use libreconstruct::job::ArtifactKind;
pub(crate) use page::{is_script, protect, refused};
pub(crate) use route::{INVITATION, WebRoute};

use self::form::Form;
use super::drain;
use super::error::ApiError;
use super::exchange::Exchange;
use super::response::Answer;

/// Answers a GET or a HEAD.
pub(crate) async fn show(exchange: &mut Exchange<'_>, route: WebRoute<'_>) -> Answer {
    match route {
        WebRoute::Home => sign_in::home(exchange).await,
        WebRoute::SignIn => sign_in::form(exchange).await,
        WebRoute::SignInPasskey => passkeys::challenge(exchange).await,
        WebRoute::Company => company::leave(exchange).await,
        WebRoute::CompanyReturn => company::come_back(exchange).await,
        WebRoute::Invitation { token } => sign_in::invitation(exchange, token).await,
        WebRoute::Profile => profile::get(exchange).await,
        WebRoute::RevokeKey { prefix } => profile::ask_to_revoke(exchange, prefix).await,
        WebRoute::RemovePasskey { id } => passkeys::ask_to_remove(exchange, id).await,
        WebRoute::Scenes => scenes::list(exchange).await,
        WebRoute::NewScene => new_scene::page(exchange).await,
        WebRoute::Scene { job_id } => scene::page(exchange, job_id).await,
        WebRoute::SceneFile { job_id } => scene::file(exchange, job_id, ArtifactKind::Spz).await,
        WebRoute::SceneFirst { job_id } => scene::file(exchange, job_id, ArtifactKind::FirstLook).await,
        WebRoute::SceneCamera { job_id } => scene::camera(exchange, job_id).await,
        WebRoute::SceneFrames { job_id } => scene::frames(exchange, job_id).await,
        WebRoute::SceneReport { job_id } => scenes::report(exchange, job_id).await,
        WebRoute::ScenePreview { job_id } => scenes::preview(exchange, job_id).await,
        WebRoute::SceneLive { job_id } => scenes::live(exchange, job_id).await,
        WebRoute::SceneDownload { job_id, file_type } => scenes::download(exchange, job_id, file_type).await,
        WebRoute::SceneRestart { job_id } => scene_actions::ask_to_restart(exchange, job_id).await,
        WebRoute::SceneDelete { job_id } => scene_actions::ask_to_delete(exchange, job_id).await,
        WebRoute::Asset { name } => assets::get(name),
        WebRoute::SignOut
        | WebRoute::SignOutEverywhere
        | WebRoute::Password
        | WebRoute::Keys
        | WebRoute::EndSession { .. }
        | WebRoute::Passkeys
        | WebRoute::BeginPasskey
        | WebRoute::SceneUploads
        | WebRoute::SceneBegin { .. }
        | WebRoute::SceneTitle { .. }
        | WebRoute::SceneCancel { .. }
        | WebRoute::ScenePublic { .. } => Err(ApiError::method_not_allowed(route.allow())),
    }
}

/// Does what a form asks for, if it stood on one of our pages.
pub(crate) async fn act(exchange: &mut Exchange<'_>, route: WebRoute<'_>, body: Incoming) -> Answer {
    let ((), body) = drain::or_drain(browser::check_same_origin(exchange), body)?;
    let form = Form::read(&exchange.parts.headers, body).await?;
    match route {
        WebRoute::SignIn => sign_in::sign_in(exchange, form).await,
        WebRoute::SignInPasskey => passkeys::sign_in(exchange, form).await,
        WebRoute::BeginPasskey => passkeys::begin_adding(exchange, form).await,
        WebRoute::Passkeys => passkeys::add(exchange, form).await,
        WebRoute::RemovePasskey { id } => passkeys::remove(exchange, id).await,
        WebRoute::SignOut => sign_in::sign_out(exchange).await,
        WebRoute::SignOutEverywhere => sign_in::sign_out_everywhere(exchange).await,
        WebRoute::Invitation { token } => sign_in::accept(exchange, token, form).await,
        WebRoute::Password => profile::change_password(exchange, form).await,
        WebRoute::Keys => profile::create_key(exchange, form).await,
        WebRoute::EndSession { id } => profile::end_session(exchange, id).await,
        WebRoute::RevokeKey { prefix } => profile::revoke(exchange, prefix).await,
        WebRoute::Scenes => new_scene::submit(exchange, form).await,
        WebRoute::SceneUploads => new_scene::create_upload(exchange, form).await,
        WebRoute::SceneDelete { job_id } => scene_actions::delete(exchange, job_id).await,
        WebRoute::SceneBegin { job_id } => scene_actions::begin_with(exchange, job_id, form).await,
        WebRoute::SceneTitle { job_id } => scene_actions::rename(exchange, job_id, form).await,
        WebRoute::SceneCancel { job_id } => scene_actions::cancel(exchange, job_id).await,
        WebRoute::SceneRestart { job_id } => scene_actions::restart(exchange, job_id, form).await,
        WebRoute::ScenePublic { job_id } => scene_actions::set_public(exchange, job_id, form).await,
        _ => Err(ApiError::method_not_allowed(route.allow())),
    }
}
