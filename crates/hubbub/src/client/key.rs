//! `hubbub key`: API keys of services.

use hyper::Method;
use serde_json::{Value, json};

use super::session::{Session, escape};
use super::table::Table;
use super::user::rights_of;
use super::{entries, print, print_json, text};
use crate::admin::token::grant_members;
use crate::cli::{ActionArgs, KeyAction, KeyCreateArgs};
use crate::output::remark;

pub(crate) async fn run(args: ActionArgs<KeyAction>) -> anyhow::Result<()> {
    let mut session = Session::new(&args.client)?;
    match args.action {
        KeyAction::Create(args) => create(&mut session, *args).await,
        KeyAction::Revoke { id } => {
            session.change(Method::DELETE, &format!("/v1/auth/keys/{}", escape(&id)), ("revoked", &id)).await
        }
        KeyAction::List => {
            let answer = session.connection.get("/v1/auth/keys").await?;
            let keys = entries(&answer, "keys")?;
            if session.is_json {
                return keys.iter().try_for_each(print_json);
            }
            print(Table::new(["key", "name", "user", "expires", "rights"]).add(keys.iter().map(row)))
        }
    }
}

async fn create(session: &mut Session, args: KeyCreateArgs) -> anyhow::Result<()> {
    let mut draft = grant_members(&args.grants)?;
    draft.insert("name".into(), json!(args.name));
    draft.insert("user".into(), json!(args.user.as_str()));
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

fn row(key: &Value) -> [String; 5] {
    let until = key.get("expiresAt").and_then(Value::as_str).unwrap_or("-");
    let plain = |name: &str| super::plain(text(key, name));
    [plain("keyId"), plain("name"), plain("user"), until.to_owned(), rights_of(key)]
}
