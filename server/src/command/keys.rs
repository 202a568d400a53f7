//! `reconstruct keys`: the API keys of the users of a service. There is no other way to make one: the interface has none.

use clap::Subcommand;
use libreconstruct::Result;
use libreconstruct::job::ApiKey;
use libreconstruct::service::Service;
use serde_json::{Value, json};

use super::data::table;
use crate::context::{Global, print_result};

/// Manage the API keys of a service
///
/// Works on the folder of the service, also while its server runs. A key is shown once, when it is made; afterwards only its
/// prefix, which names it. A revoked key stops working at once and for ever.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  reconstruct keys create alice --name laptop
  reconstruct keys list alice
  reconstruct keys revoke alice lrk_4fQ2xZ9a")]
pub(crate) enum Action {
    /// Make a key and show it, once
    Create {
        /// The user's name
        user: String,
        /// What the key is called
        #[arg(long, default_value = "default")]
        name: String,
    },
    /// List a user's keys
    List {
        /// The user's name
        user: String,
    },
    /// Revoke a key, for ever
    Revoke {
        /// The user's name
        user: String,
        /// The key's prefix, up to the dot
        prefix: String,
    },
}

impl Action {
    pub(crate) fn run(&self, service: &Service, global: Global) -> Result<()> {
        match self {
            Self::Create { user, name } => {
                let user = service.user_by_name(user)?;
                let (key, secret) = service.create_key(user.user_id, name)?;
                let mut value = shown(&key);
                value["key"] = secret.reveal().into();
                print_result(global, &value, secret.reveal());
            }
            Self::List { user } => {
                let keys = service.keys(service.user_by_name(user)?.user_id)?;
                let values: Vec<Value> = keys.iter().map(shown).collect();
                print_result(global, &json!({ "keys": values }), &listed(&keys));
            }
            Self::Revoke { user, prefix } => {
                let user = service.user_by_name(user)?;
                // A whole key is as good as its prefix.
                let prefix = prefix.split('.').next().unwrap_or(prefix);
                service.revoke_key(user.user_id, prefix)?;
                print_result(
                    global,
                    &json!({ "prefix": prefix, "revoked": true }),
                    &format!("revoked {prefix}"),
                );
            }
        }
        Ok(())
    }
}

/// A key under the names of rule 19 of docs/rest.md.
fn shown(key: &ApiKey) -> Value {
    json!({
        "name": key.name,
        "prefix": key.prefix,
        "created_at": key.created_at,
        "last_used": key.last_used,
        "revoked_at": key.revoked_at,
    })
}

fn listed(keys: &[ApiKey]) -> String {
    let rows = keys.iter().map(|k| {
        let last_used = k.last_used.map_or("never".to_owned(), |t| t.to_string());
        let state = k.revoked_at.map_or("valid".to_owned(), |t| format!("revoked {t}"));
        [k.prefix.clone(), k.name.clone(), k.created_at.to_string(), last_used, state]
    });
    table(["PREFIX", "NAME", "CREATED", "LAST USED", "STATE"], rows)
}
