//! From a path to a page of the web application, or to what its pages send and fetch.

/// A page, with the parameters of its path as they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebRoute<'a> {
    Home,
    SignIn,
    /// A GET says what a passkey is to sign, a POST what it has signed.
    SignInPasskey,
    /// The way to the service by which users sign in.
    Company,
    CompanyReturn,
    SignOut,
    SignOutEverywhere,
    Invitation {
        token: &'a str,
    },
    Profile,
    Password,
    Keys,
    EndSession {
        id: &'a str,
    },
    Passkeys,
    /// Where a page asks what a new passkey is to be.
    BeginPasskey,
    RemovePasskey {
        id: &'a str,
    },
    RevokeKey {
        prefix: &'a str,
    },
    /// The list of scenes; a POST adds one.
    Scenes,
    NewScene,
    /// Where a page asks for an address for a video.
    SceneUploads,
    Scene {
        job_id: &'a str,
    },
    SceneReport {
        job_id: &'a str,
    },
    /// What the viewer of a page fetches.
    SceneFile {
        job_id: &'a str,
    },
    SceneFirst {
        job_id: &'a str,
    },
    SceneCamera {
        job_id: &'a str,
    },
    /// From where the frames were taken.
    SceneFrames {
        job_id: &'a str,
    },
    SceneBegin {
        job_id: &'a str,
    },
    SceneTitle {
        job_id: &'a str,
    },
    ScenePreview {
        job_id: &'a str,
    },
    /// What the scene looks like while it is trained.
    SceneLive {
        job_id: &'a str,
    },
    SceneDownload {
        job_id: &'a str,
        file_type: &'a str,
    },
    SceneDelete {
        job_id: &'a str,
    },
    SceneCancel {
        job_id: &'a str,
    },
    SceneRestart {
        job_id: &'a str,
    },
    ScenePublic {
        job_id: &'a str,
    },
    /// The style and the scripts of the pages.
    Asset {
        name: &'a str,
    },
}

/// Everything before the token of an invitation.
pub(crate) const INVITATION: &str = "/invitation/";

impl<'a> WebRoute<'a> {
    /// The page at `path`, if there is one.
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        if let Some(token) = path.strip_prefix(INVITATION) {
            // Whatever follows: no part of a token that was sent with a mistake may stand in the log as an unknown path.
            return Some(Self::Invitation { token: token.strip_suffix('/').unwrap_or(token) });
        }
        let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        // Both slash forms, as everywhere.
        let segments = match &segments[..] {
            [all @ .., ""] if all.iter().any(|segment| !segment.is_empty()) => all,
            all => all,
        };
        Some(match *segments {
            [""] => Self::Home,
            ["sign-in"] => Self::SignIn,
            ["sign-in", "passkey"] => Self::SignInPasskey,
            ["sign-in", "company"] => Self::Company,
            ["sign-in", "company", "return"] => Self::CompanyReturn,
            ["sign-out"] => Self::SignOut,
            ["sign-out-everywhere"] => Self::SignOutEverywhere,
            ["profile"] => Self::Profile,
            ["profile", "password"] => Self::Password,
            ["profile", "keys"] => Self::Keys,
            ["profile", "sessions", id, "end"] => Self::EndSession { id },
            ["profile", "passkeys"] => Self::Passkeys,
            ["profile", "passkeys", "begin"] => Self::BeginPasskey,
            ["profile", "passkeys", id, "remove"] => Self::RemovePasskey { id },
            ["profile", "keys", prefix, "revoke"] => Self::RevokeKey { prefix },
            ["scenes"] => Self::Scenes,
            ["scenes", "new"] => Self::NewScene,
            ["scenes", "uploads"] => Self::SceneUploads,
            ["scenes", job_id] if !job_id.is_empty() => Self::Scene { job_id },
            ["scenes", job_id, "scene.spz"] => Self::SceneFile { job_id },
            ["scenes", job_id, "first.spz"] => Self::SceneFirst { job_id },
            ["scenes", job_id, "camera.json"] => Self::SceneCamera { job_id },
            ["scenes", job_id, "frames.json"] => Self::SceneFrames { job_id },
            ["scenes", job_id, "camera"] => Self::SceneBegin { job_id },
            ["scenes", job_id, "title"] => Self::SceneTitle { job_id },
            ["scenes", job_id, "report"] => Self::SceneReport { job_id },
            ["scenes", job_id, "preview.jpg"] => Self::ScenePreview { job_id },
            ["scenes", job_id, "live.jpg"] => Self::SceneLive { job_id },
            ["scenes", job_id, "download", file_type] => Self::SceneDownload { job_id, file_type },
            ["scenes", job_id, "delete"] => Self::SceneDelete { job_id },
            ["scenes", job_id, "cancel"] => Self::SceneCancel { job_id },
            ["scenes", job_id, "restart"] => Self::SceneRestart { job_id },
            ["scenes", job_id, "public"] => Self::ScenePublic { job_id },
            ["web", name] => Self::Asset { name },
            _ => return None,
        })
    }

    /// What it is called in logs and metrics.
    pub(crate) fn template(self) -> &'static str {
        match self {
            Self::Home => "/",
            Self::SignIn => "/sign-in",
            Self::SignInPasskey => "/sign-in/passkey",
            Self::Company => "/sign-in/company",
            Self::CompanyReturn => "/sign-in/company/return",
            Self::SignOut => "/sign-out",
            Self::SignOutEverywhere => "/sign-out-everywhere",
            Self::Invitation { .. } => "/invitation/{token}",
            Self::Profile => "/profile",
            Self::Password => "/profile/password",
            Self::Keys => "/profile/keys",
            Self::EndSession { .. } => "/profile/sessions/{id}/end",
            Self::Passkeys => "/profile/passkeys",
            Self::BeginPasskey => "/profile/passkeys/begin",
            Self::RemovePasskey { .. } => "/profile/passkeys/{id}/remove",
            Self::RevokeKey { .. } => "/profile/keys/{prefix}/revoke",
            Self::Scenes => "/scenes",
            Self::NewScene => "/scenes/new",
            Self::SceneUploads => "/scenes/uploads",
            Self::Scene { .. } => "/scenes/{job_id}",
            Self::SceneFile { .. } => "/scenes/{job_id}/scene.spz",
            Self::SceneFirst { .. } => "/scenes/{job_id}/first.spz",
            Self::SceneCamera { .. } => "/scenes/{job_id}/camera.json",
            Self::SceneFrames { .. } => "/scenes/{job_id}/frames.json",
            Self::SceneBegin { .. } => "/scenes/{job_id}/camera",
            Self::SceneTitle { .. } => "/scenes/{job_id}/title",
            Self::SceneReport { .. } => "/scenes/{job_id}/report",
            Self::ScenePreview { .. } => "/scenes/{job_id}/preview.jpg",
            Self::SceneLive { .. } => "/scenes/{job_id}/live.jpg",
            Self::SceneDownload { .. } => "/scenes/{job_id}/download/{file_type}",
            Self::SceneDelete { .. } => "/scenes/{job_id}/delete",
            Self::SceneCancel { .. } => "/scenes/{job_id}/cancel",
            Self::SceneRestart { .. } => "/scenes/{job_id}/restart",
            Self::ScenePublic { .. } => "/scenes/{job_id}/public",
            Self::Asset { .. } => "/web/{name}",
        }
    }

    /// Whether it gives a file of a job, or the address of one. What a scene looks like while it is trained is none.
    pub(crate) fn gives_file(self) -> bool {
        matches!(
            self,
            Self::SceneFile { .. }
                | Self::SceneFirst { .. }
                | Self::ScenePreview { .. }
                | Self::SceneDownload { .. }
        )
    }

    /// The value of `Allow`. What changes anything is a POST, and a page that asks first is both.
    pub(crate) fn allow(self) -> &'static str {
        match self {
            Self::SignOut
            | Self::SignOutEverywhere
            | Self::Password
            | Self::Keys
            | Self::EndSession { .. }
            | Self::Passkeys
            | Self::BeginPasskey
            | Self::SceneUploads
            | Self::SceneBegin { .. }
            | Self::SceneTitle { .. }
            | Self::SceneCancel { .. }
            | Self::ScenePublic { .. } => "POST, OPTIONS",
            Self::SignIn
            | Self::SignInPasskey
            | Self::RemovePasskey { .. }
            | Self::Invitation { .. }
            | Self::RevokeKey { .. }
            | Self::Scenes
            | Self::SceneRestart { .. }
            | Self::SceneDelete { .. } => "GET, HEAD, POST, OPTIONS",
            _ => "GET, HEAD, OPTIONS",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_slash_forms_name_the_same_page() {
        for path in [
            "/sign-in",
            "/profile",
            "/profile/keys/lrk_a/revoke",
            "/scenes",
            "/scenes/new",
            "/scenes/0b",
            "/scenes/0b/delete",
            "/invitation/ab",
        ] {
            let route = WebRoute::of(path);
            assert!(route.is_some(), "{path}");
            assert_eq!(route, WebRoute::of(&format!("{path}/")), "{path}");
        }
        assert_eq!(WebRoute::of("/"), Some(WebRoute::Home));
    }

    #[test]
    fn other_paths_name_nothing() {
        for path in
            ["", "*", "//", "/scenes//", "/profile/keys/a/b/revoke", "/web", "/web/", "/api/v1/scenes"]
        {
            let found = WebRoute::of(path);
            assert!(matches!(found, None | Some(WebRoute::Asset { name: "" })), "{path}: {found:?}");
        }
    }

    #[test]
    fn no_part_of_a_token_is_ever_a_path_in_the_log() {
        for path in ["/invitation/", "/invitation/ab/cd", "/invitation/ab//"] {
            assert_eq!(WebRoute::of(path).unwrap().template(), "/invitation/{token}");
        }
    }
}
