//! `hubbub key`: API keys of services.

use hyper::Method;
use serde_json::{Value, json};

use super::session::{Session, escape};
use super::user::rights_of;
use super::{entries, print, print_json, show, text};
use crate::admin::token::grant_members;
use crate::cli::{ActionArgs, KeyAction, KeyCreateArgs};
use crate::output::remark;

pub(crate) async fn run(args: ActionArgs<KeyAction>) -> anyhow::Result<()> {
    let mut session = Session::new(&args.client)?;
    match args.action {
        KeyAction::Create(args) => create(&mut session, *args).await,
        KeyAction::Revoke { id } => {
            session.change(Method::DELETE, &format!("/v1/auth/keys/{}", escape(&id))).await
        }
        KeyAction::List => {
            let answer = session.connection.get("/v1/auth/keys").await?;
            let keys = entries(&answer, "keys")?;
            keys.iter().try_for_each(|key| show(session.is_json, key, line))
        }
    }
}

async fn create(session: &mut Session, args: KeyCreateArgs) -> anyhow::Result<()> {
    let mut draft = grant_members(&args.grants)?;
    draft.insert("name".into(), json!(args.name));
    draft.insert("user".into(), json!(args.user));
    if let Some(lifetime) = args.lifetime {
        draft.insert("ttl".into(), json!(lifetime.as_secs().max(1)));
    }
    let made = session.post("/v1/auth/keys", Value::Object(draft).to_string()).await?;
    if session.is_json {
        return print_json(&made);
    }
    remark(&format!("API key {}; it is not shown again:", text(&made, "keyId")));
    print(format!("{}\n", text(&made, "apiKey")))
}

fn line(key: &Value) -> String {
    let until = key.get("expiresAt").and_then(Value::as_str).unwrap_or("revoked");
    let (id, name, user) = (text(key, "keyId"), super::plain(text(key, "name")), text(key, "user"));
    format!("{id}  {name}  as {user}, until {until}: {}\n", rights_of(key))
}
