//! `hubbub token`: makes tokens with the configured secret, and shows what is in one.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use hubbub_core::invariant::saturate;
use hubbub_core::{Clock, Timestamp};
use hubbub_gateway::auth::{Claims, GrantsText, KEY_PREFIX, OneOrMany, mint, unverified};
use serde_json::{Map, Value, json};

use crate::cli::{GrantArgs, InspectArgs, MintArgs, ServeArgs, TokenAction};
use crate::client::session::make_id;
use crate::config::{self, Config, ConfigError, Environment};
use crate::output::{UsageError, json_line, print};
use crate::system::SystemClock;

pub(crate) fn run(action: &TokenAction) -> anyhow::Result<()> {
    match action {
        TokenAction::Mint(args) => print(format!("{}\n", mint_token(args)?)),
        TokenAction::Inspect(args) => inspect(args),
    }
}

/// Says where the secret may be set, and where it was looked for.
fn no_secret(config: Option<&Path>) -> anyhow::Error {
    let read = Environment::of_process().map(|environment| config::file_text(config, &environment));
    let read = match read {
        Err(error) => return error.into(),
        Ok(Some(file)) => format!("{file} was read; --config names another one"),
        Ok(None) => "none was read, as there is no hubbub.toml here; --config names one".to_owned(),
    };
    let text = "auth.secret is not set: set HUBBUB_AUTH_SECRET, or write it into the configuration file";
    ConfigError(vec![format!("{text} ({read})")]).into()
}

fn load(config: Option<&Path>) -> anyhow::Result<Config> {
    let args = ServeArgs { config: config.map(Into::into), ..ServeArgs::default() };
    Ok(config::load(&args, &Environment::of_process()?)?)
}

fn mint_token(args: &MintArgs) -> anyhow::Result<String> {
    let config = load(args.config.as_deref())?;
    let secret = config.auth_secret.as_ref().ok_or_else(|| no_secret(args.config.as_deref()))?;
    let now = seconds(SystemClock::new().now().as_micros());
    let claims = Claims {
        sub: Some(args.user.to_string()),
        iat: Some(now),
        exp: Some(now + args.lifetime.as_secs_f64()),
        jti: Some(args.id.clone().unwrap_or_else(make_id)),
        aud: (*config.auth_audience).clone().map(OneOrMany::One),
        iss: (*config.auth_issuer).clone(),
        nbf: None,
        grants: grants(&args.grants)?,
    };
    let token = mint(&claims, &secret.0).map_err(UsageError)?;
    // What no server would accept is not made.
    if let Some(verifier) = config.verifier().map_err(|error| anyhow!(error))? {
        let refused = |reason| UsageError(format!("no server would accept it: {reason}"));
        verifier.check(&token, SystemClock::new().now()).map_err(refused)?;
    }
    Ok(token)
}

fn seconds(micros: i64) -> f64 {
    // To the millisecond, which a float holds for any date.
    #[allow(clippy::cast_precision_loss)]
    let seconds = saturate::<i64, i64>(micros / 1_000) as f64 / 1e3;
    seconds
}

/// The same as members of a request.
pub(crate) fn grant_members(args: &GrantArgs) -> anyhow::Result<Map<String, Value>> {
    match serde_json::to_value(grants(args)?)? {
        Value::Object(members) => Ok(members),
        other => bail!("rights must be an object, not {other}"),
    }
}

/// What the options allow.
fn grants(args: &GrantArgs) -> anyhow::Result<GrantsText> {
    let scopes = args.scopes.iter().map(|scope| serde_json::from_value(json!(scope)));
    let scopes = scopes.collect::<Result<_, _>>().context("--scope")?;
    let map = |pairs: &[(String, String)]| pairs.iter().cloned().collect();
    Ok(GrantsText {
        admin: args.admin,
        rooms: map(&args.rooms),
        queues: map(&args.queues),
        kv: map(&args.kv),
        scopes,
    })
}

/// The times of a token for people.
fn times(claims: &Value) -> String {
    let names = [("iat", "issued"), ("nbf", "valid from"), ("exp", "expires")];
    let line = |(claim, name): (&str, &str)| {
        let time = Timestamp::from_epoch_seconds(claims.get(claim)?.as_f64()?)?;
        Some(format!("{name} {time}\n"))
    };
    names.into_iter().filter_map(line).collect()
}

/// Whether an argument is rather a token, or an API key, than the name of a file.
fn looks_like_a_token(argument: &Path) -> bool {
    let Some(text) = argument.to_str().filter(|_| !argument.exists()) else { return false };
    // A token begins with an object in base64url.
    let is_signed = text.starts_with("eyJ") && text.split('.').count() == 3;
    is_signed || text.starts_with(KEY_PREFIX)
}

fn inspect(args: &InspectArgs) -> anyhow::Result<()> {
    let mut token = String::new();
    match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) if looks_like_a_token(file) => {
            // It is not repeated: where errors are logged, others read them.
            let text = "the argument is a file with the token, not the token itself; give that on standard input: \
                        printf %s \"$TOKEN\" | hubbub token inspect";
            return Err(UsageError(text.to_owned()).into());
        }
        Some(file) => {
            token = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        }
        None => drop(std::io::stdin().read_to_string(&mut token).context("reading standard input")?),
    }
    let place =
        || args.file.as_deref().map_or("standard input".to_owned(), |file| file.display().to_string());
    let token = token.trim();
    if token.is_empty() {
        bail!("{}: there is no token in it", place());
    }
    if token.starts_with(KEY_PREFIX) {
        return print("an API key: only its server knows what it may (hubbub key list)\n");
    }
    let config = load(args.config.as_deref())?;
    let (header, claims): (Value, Value) =
        unverified(token).map_err(|error| anyhow!("{}: {error}", place()))?;
    print(json_line(&format!("{header:#}\n{claims:#}\n")))?;
    print(times(&claims))?;
    let Some(verifier) = config.verifier().map_err(|error| anyhow!(error))? else {
        bail!(
            "this configuration has no keys to verify it with; set auth.secret, auth.public_key or auth.jwks"
        )
    };
    match verifier.check(token, SystemClock::new().now()) {
        Ok(()) => print("valid for this configuration; whether it was revoked, only the server knows\n"),
        Err(reason) => bail!("refused by this configuration: {reason}"),
    }
}
