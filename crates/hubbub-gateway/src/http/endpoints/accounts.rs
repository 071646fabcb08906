//! Accounts with passwords, and where people are logged in.

use hubbub_core::ErrorCode::*;

use super::super::accounts;
use super::super::endpoint::{Endpoint, delete, get, post, put};
use super::super::logins;
use super::super::operation::Media::*;
use super::super::operation::{PAGE, Parameter, query};
use super::super::permission::Permission;
use super::super::spec::schemas::id;

const OF_USER: &[Parameter] = &[query("user", id, "Only those of this user.")];

pub(super) static ENDPOINTS: &[Endpoint] = &[
    get("/v1/auth/login", |call| Box::pin(logins::ways_to_log_in(call)))
        .needs(Permission::Open)
        .named("getWaysToLogIn", "How people may log in")
        .gives(&[(200, Json("WaysToLogIn"), "")]),
    post("/v1/auth/login", |call| Box::pin(logins::log_in(call)))
        .needs(Permission::Open)
        .named("logIn", "Log in with name and password")
        .about(
            "Gives a token that lasts `auth.login_lifetime`. An account and an address may try a number of times each \
             minute (`auth.login_attempts`, `auth.login_attempts_address`), then are answered with 429 and `Retry-After`.",
        )
        .takes(Json("LoginDraft"))
        .gives(&[(200, Json("NewLogin"), "")])
        .refuses(&[Malformed, Invalid, Unauthorized, NotSupported]),
    post("/v1/auth/accounts", |call| Box::pin(accounts::add_account(call)))
        .needs(Permission::Admin)
        .named("addAccount", "Add an account")
        .about("Refused with `condition_failed` if there is one of this name.")
        .takes(Json("AccountDraft"))
        .gives(&[(201, Json("Account"), "")])
        .refuses(&[Malformed, Invalid, ConditionFailed, NotSupported]),
    get("/v1/auth/accounts", |call| Box::pin(accounts::list_accounts(call)))
        .needs(Permission::Admin)
        .named("listAccounts", "List accounts")
        .parameters(&[PAGE])
        .gives(&[(200, Json("AccountList"), "")])
        .refuses(&[Invalid, NotSupported]),
    put("/v1/auth/accounts/{user}", |call| Box::pin(accounts::set_rights(call)))
        .needs(Permission::Admin)
        .named("setAccountRights", "Change what an account may do")
        .about("It is logged out everywhere, on every server of the store; its sockets close within a second.")
        .takes(Json("RightsDraft"))
        .gives(&[(200, Json("Account"), "")])
        .refuses(&[Malformed, Invalid, ConditionFailed, NotFound, NotSupported]),
    delete("/v1/auth/accounts/{user}", |call| Box::pin(accounts::remove_account(call)))
        .needs(Permission::Admin)
        .named("removeAccount", "Remove an account")
        .about(
            "Once it is answered, no server of the store accepts its logins, and its sockets close within a second. \
             Messages and memberships of the user stay: see `eraseUser`.",
        )
        .gives(&[(204, Nothing, "It is gone.")])
        .refuses(&[Invalid, NotFound, NotSupported]),
    put("/v1/auth/accounts/{user}/password", |call| Box::pin(accounts::change_password(call)))
        .needs(Permission::Own)
        .named("changePassword", "Change an account's password")
        .about(
            "Ends all other logins of the account. Who is not an administrator gives the password until now, which \
             counts as an attempt to log in.",
        )
        .takes(Json("PasswordDraft"))
        .gives(&[(204, Nothing, "It is changed.")])
        .refuses(&[Malformed, Invalid, ConditionFailed, NotFound, NotSupported]),
    get("/v1/auth/logins", |call| Box::pin(logins::list_logins(call)))
        .needs(Permission::Caller)
        .named("listLogins", "List where people are logged in")
        .about("For administrators everybody; for who is logged in, the own account. Other tokens of a user see none.")
        .parameters(&[OF_USER, PAGE])
        .gives(&[(200, Json("LoginList"), "")])
        .refuses(&[Invalid, NotSupported]),
    delete("/v1/auth/logins/{loginId}", |call| Box::pin(logins::end_login(call)))
        .needs(Permission::Caller)
        .named("endLogin", "End a login")
        .about(
            "With a login one's own, or for administrators anybody's. Once it is answered, no server of the store accepts it, and \
             its sockets close within a second.",
        )
        .gives(&[(204, Nothing, "It has ended.")])
        .refuses(&[Invalid, NotFound, NotSupported]),
];
