//! `hubbub key`: API keys of services.

use hyper::Method;
use serde_json::{Value, json};

use super::session::{Session, object};
use super::{entries, print, print_json, show, text};
use crate::admin::token::grants;
use crate::cli::{ActionArgs, KeyAction, KeyCreateArgs};

pub(crate) async fn run(args: ActionArgs<KeyAction>) -> anyhow::Result<()> {
    let mut session = Session::new(&args.client)?;
    match args.action {
        KeyAction::Create(args) => create(&mut session, *args).await,
        KeyAction::Revoke { id } => {
            let id: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
            session.change(Method::DELETE, &format!("/v1/auth/keys/{id}")).await
        }
        KeyAction::List => {
            let answer = session.connection.get("/v1/auth/keys").await?;
            let keys = entries(&answer, "keys")?;
            keys.iter().try_for_each(|key| show(session.is_json, key, line))
        }
    }
}

async fn create(session: &mut Session, args: KeyCreateArgs) -> anyhow::Result<()> {
    let allowed = serde_json::to_value(grants(&args.grants)?)?;
    let about = [
        ("name", Some(json!(args.name))),
        ("user", Some(json!(args.user))),
        ("ttl", args.lifetime.map(|lifetime| json!(lifetime.as_secs().max(1)))),
    ];
    let mut draft: Value = serde_json::from_str(&object(about))?;
    if let (Some(members), Value::Object(allowed)) = (draft.as_object_mut(), allowed) {
        members.extend(allowed);
    }
    let made = session.post("/v1/auth/keys", draft.to_string()).await?;
    if session.is_json {
        return print_json(&made);
    }
    eprintln!("API key {}; it is not shown again:", text(&made, "keyId"));
    print(format!("{}\n", text(&made, "apiKey")))
}

fn line(key: &Value) -> String {
    let until = key.get("expiresAt").and_then(Value::as_str).unwrap_or("revoked");
    format!("{}  {}  as {}, until {until}\n", text(key, "keyId"), text(key, "name"), text(key, "user"))
}
