//! Who calls, API keys, and revoked tokens.

use hubbub_core::ErrorCode::*;

use super::super::api_keys;
use super::super::endpoint::{Endpoint, delete, get, post};
use super::super::operation::Media::*;
use super::super::permission::Permission;
use super::super::revocations;

pub(super) static ENDPOINTS: &[Endpoint] = &[
    get("/v1/auth/me", |call| Box::pin(api_keys::me(call)))
        .needs(Permission::Caller)
        .named("getMe", "Who calls, and until when")
        .gives(&[(200, Json("Me"), "")])
        .refuses_only(&[Invalid, Forbidden]),
    post("/v1/auth/session", |call| Box::pin(api_keys::open_session(call)))
        .needs(Permission::Caller)
        .named("openSession", "Keep the token in a cookie")
        .about(
            "For pages, which cannot set headers for Server-Sent Events: the token of `Authorization` as a cookie that \
             scripts cannot read, for 15 minutes at most. It is good for event streams only: for a GET with `Accept: text/event-stream`.",
        )
        .gives(&[(204, Nothing, "The answer sets the cookie.")])
        .refuses_only(&[Invalid, Forbidden]),
    delete("/v1/auth/session", |call| Box::pin(api_keys::close_session(call)))
        .needs(Permission::Open)
        .named("closeSession", "Log out")
        .about("Forgets the cookie. If `Authorization` has the token of a login, the login ends, on every server of the store.")
        .gives(&[(204, Nothing, "")]),
    post("/v1/auth/keys", |call| Box::pin(api_keys::create_key(call)))
        .needs(Permission::Admin)
        .named("createApiKey", "Create an API key for a service")
        .about(
            "The key is shown once. It is valid on every server of the store at once. A server that asks for no tokens \
             makes none.",
        )
        .takes(Json("KeyDraft"))
        .gives(&[(201, Json("NewApiKey"), "")])
        .refuses(&[Malformed, Invalid, NotSupported]),
    get("/v1/auth/keys", |call| Box::pin(api_keys::list_keys(call)))
        .needs(Permission::Admin)
        .named("listApiKeys", "List API keys")
        .gives(&[(200, Json("ApiKeyList"), "")])
        .refuses(&[Invalid, Forbidden]),
    post("/v1/auth/revocations", |call| Box::pin(revocations::revoke_tokens(call)))
        .needs(Permission::Admin)
        .named("revokeTokens", "Revoke tokens")
        .about(
            "One token by its `jti`, or all of a user that were issued before a time. Sockets that were opened with \
             them close within a second, on every server of the store. A revocation is kept until the last such token \
             has expired.",
        )
        .takes(Json("RevocationDraft"))
        .gives(&[(201, Json("Revocation"), "")])
        .refuses(&[Malformed, Invalid]),
    get("/v1/auth/revocations", |call| Box::pin(revocations::list_revocations(call)))
        .needs(Permission::Admin)
        .named("listRevocations", "List what is revoked")
        .gives(&[(200, Json("RevocationList"), "")])
        .refuses(&[Invalid, Forbidden]),
    delete("/v1/auth/keys/{keyId}", |call| Box::pin(api_keys::revoke_key(call)))
        .needs(Permission::Admin)
        .named("revokeApiKey", "Revoke an API key")
        .about("Once it is answered, no server of the store accepts the key, and sockets it opened close within a second.")
        .gives(&[(204, Nothing, "It is gone.")])
        .refuses(&[Invalid, NotFound]),
];
