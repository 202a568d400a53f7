//! `reconstruct users`: who may use a service.

use clap::Subcommand;
use libreconstruct::Result;
use libreconstruct::job::{Tier, User};
use libreconstruct::service::Service;
use serde_json::json;

use super::data::table;
use crate::context::{Global, print_result};

/// Manage the users of a service
///
/// Works on the folder of the service, also while its server runs. A user of tier enterprise may use the interface with a key
/// (`reconstruct keys create`); one of tier free may not.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  reconstruct users add alice
  reconstruct users set-tier alice free     her keys are answered with 403 from now on
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
    /// Change what a user may do, at once
    SetTier {
        /// The user's name
        name: String,
        /// enterprise or free
        tier: Tier,
    },
}

impl Action {
    pub(crate) fn run(&self, service: &Service, global: Global) -> Result<()> {
        match self {
            Self::Add { name, tier } => {
                let user = service.add_user(name, *tier)?;
                print_result(
                    global,
                    &user,
                    &format!("added {name}; `reconstruct keys create {name}` makes a key"),
                );
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

fn listed(users: &[User]) -> String {
    let rows = users
        .iter()
        .map(|u| [u.name.clone(), u.tier.to_string(), u.created_at.to_string(), u.user_id.to_string()]);
    table(["NAME", "TIER", "CREATED", "ID"], rows)
}
