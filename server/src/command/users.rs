//! `reconstruct users`: who may use a service.

use clap::Subcommand;
use libreconstruct::database::Identity;
use libreconstruct::job::{Tier, User};
use libreconstruct::service::Service;
use libreconstruct::{Error, ErrorKind, Result};
use serde_json::json;

use super::data::table;
use crate::config::Config;
use crate::context::{Global, print_result};
use crate::http::INVITATION;

/// Manage the users of a service
///
/// Works on the folder of the service, also while its server runs. A user of tier enterprise may use the interface with a key
/// (`reconstruct keys create`); one of tier free may not. Who is invited may sign in to the web application, whatever the tier.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  reconstruct users add alice
  reconstruct users invite alice            prints a link on which she chooses a password for the web application
  reconstruct users set-tier alice free     her keys are answered with 403 from now on
  reconstruct users sign-out alice          ends her sessions in all browsers, and takes back her invitation
  reconstruct users list --json")]
pub(crate) enum Action {
    /// Add a user
    Add {
        /// Unique name
        name: String,
        /// enterprise or free
        #[arg(long, default_value = "enterprise")]
        tier: Tier,
    },
    /// List all users
    List,
    /// Make a link with which a user chooses a password for the web application
    ///
    /// The link works once, for three days; a new one takes the place of the one before. It is also the way back for who has forgotten
    /// the password: a new one ends all sessions. Send it where nobody else reads it.
    Invite {
        /// The user's name
        name: String,
        /// What the link begins with [default: the configured public_url, else the address on which the server listens]
        #[arg(long, value_name = "URL")]
        url: Option<String>,
    },
    /// End the sessions of a user in all browsers, and take back an invitation
    SignOut {
        /// The user's name
        name: String,
    },
    /// Have a user sign in by an account of the service that the configuration names (oidc.issuer)
    Link {
        /// The user's name
        name: String,
        /// What that service calls the account, for ever: the claim `sub` of its tokens
        subject: String,
        /// Another service than the configured one
        #[arg(long, value_name = "URL")]
        issuer: Option<String>,
    },
    /// Take all such accounts away from a user
    ///
    /// Sessions go on; `reconstruct users sign-out` ends them.
    Unlink {
        /// The user's name
        name: String,
    },
    /// Change what a user may do, at once
    SetTier {
        /// The user's name
        name: String,
        /// enterprise or free
        tier: Tier,
    },
}

impl Action {
    pub(crate) fn run(&self, service: &Service, config: &Config, global: Global) -> Result<()> {
        match self {
            Self::Add { name, tier } => {
                let user = service.add_user(name, *tier)?;
                print_result(
                    global,
                    &user,
                    &format!(
                        "added {name}; `reconstruct keys create {name}` makes a key, `reconstruct users invite {name}` a link to \
                         the web application"
                    ),
                );
            }
            Self::Invite { name, url } => {
                let base = base(url.as_deref(), config)?;
                let user = service.user_by_name(name)?;
                let invited = service.invite(user.user_id)?;
                let link = format!("{base}{INVITATION}{}", invited.token.reveal());
                let value = json!({ "user": name, "link": link, "expires_at": invited.expires_at });
                print_result(global, &value, &link);
            }
            Self::SignOut { name } => {
                let user = service.user_by_name(name)?;
                let ended = service.sign_out_everywhere(user.user_id)?;
                let value = json!({ "user": name, "ended_sessions": ended });
                print_result(global, &value, &format!("ended {ended} sessions of {name}"));
            }
            Self::Link { name, subject, issuer } => {
                let issuer = issuer.clone().or_else(|| config.oidc.issuer.clone()).ok_or_else(|| {
                    Error::argument("no service is configured by which users sign in (oidc.issuer)")
                        .hint("set it, or say which one is meant: --issuer https://login.example.org")
                })?;
                let user = service.user_by_name(name)?;
                let identity = Identity { issuer, subject: subject.clone() };
                service.link_identity(&user, &identity)?;
                let value = json!({ "user": name, "issuer": identity.issuer, "subject": subject });
                print_result(global, &value, &format!("{name} signs in by {subject} of {}", identity.issuer));
            }
            Self::Unlink { name } => {
                let user = service.user_by_name(name)?;
                let unlinked = service.unlink_identities(user.user_id)?;
                let value = json!({ "user": name, "unlinked": unlinked });
                print_result(global, &value, &format!("took {unlinked} accounts away from {name}"));
            }
            Self::List => {
                let users = service.users()?;
                print_result(global, &json!({ "users": users }), &listed(&users));
            }
            Self::SetTier { name, tier } => {
                let user = service.user_by_name(name)?;
                service.set_tier(user.user_id, *tier)?;
                let user = service.user_by_name(name)?;
                print_result(global, &user, &format!("{name} is of tier {tier}"));
            }
        }
        Ok(())
    }
}

/// What the link begins with.
fn base(url: Option<&str>, config: &Config) -> Result<String> {
    if !config.web {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "this service has no web application: `web` is false",
        )
        .hint("switch it on in the configuration of the server"));
    }
    if let Some(url) = url {
        let uri: Option<hyper::Uri> = url.parse().ok();
        let scheme = uri.as_ref().and_then(|uri| uri.scheme_str());
        if !matches!(scheme, Some("http" | "https")) || url.contains(['?', '#']) {
            return Err(Error::argument(format!("--url is {url:?}: http://… or https://… is expected")));
        }
        return Ok(url.trim_end_matches('/').to_owned());
    }
    if config.public_url.is_none() && config.listen.port() == 0 {
        return Err(Error::argument("the server takes any free port, so its address is not known here")
            .hint("say what the link begins with: --url http://127.0.0.1:8080"));
    }
    Ok(config.base(config.listen))
}

fn listed(users: &[User]) -> String {
    let rows = users
        .iter()
        .map(|u| [u.name.clone(), u.tier.to_string(), u.created_at.to_string(), u.user_id.to_string()]);
    table(["NAME", "TIER", "CREATED", "ID"], rows)
}
