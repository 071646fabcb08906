//! What is stored, counted.

use hubbub_core::ErrorCode::*;

use super::super::endpoint::{Endpoint, get, post};
use super::super::operation::{
    AFTER, FROM_TO, HISTORY_LIMIT, LIMIT, Media::*, PAGE, Parameter, REPLICATED, query,
};
use super::super::permission::Permission;
use super::super::spec::schemas::{id, limit, text, time};
use super::super::{history, query, stats};
use crate::auth::Scope;

/// Most rows of a list of those with most messages.
const TOP: Parameter =
    query("limit", |_| limit(1, stats::TOP_DEFAULT, query::LIMIT_MAX), "Most rows of the list.");

pub(super) static ENDPOINTS: &[Endpoint] = &[
    get("/v1/users/{user}/messages", |call| Box::pin(history::user_messages(call)))
        .needs(Permission::Own)
        .named("readUserMessages", "What a user wrote, over all rooms")
        .about("By time, newest last; of equal times by room, then by `seq`. For the user, and for administrators.")
        .parameters(&[
            REPLICATED,
            &[query("before", text, "The `next` of the page with newer ones.")],
            FROM_TO,
            &[HISTORY_LIMIT],
        ])
        .gives(&[(200, Json("UserMessages"), "")])
        .refuses(&[Malformed, Invalid, Forbidden]),
    get("/v1/stats", |call| Box::pin(stats::totals(call)))
        .needs(Permission::Scope(Scope::Stats))
        .named("getTotals", "Everything together")
        .about("Exact, like all statistics: the result of counting all messages. Deleted ones are not counted.")
        .parameters(&[REPLICATED])
        .gives(&[(200, Json("Totals"), "")])
        .refuses(&[Malformed, Invalid, Forbidden]),
    get("/v1/stats/rooms", |call| Box::pin(stats::rooms(call)))
        .needs(Permission::Scope(Scope::Stats))
        .named("listRoomStats", "The rooms with most messages")
        .about("Equal ones in the order of their ids.")
        .parameters(&[
            REPLICATED,
            &[TOP, query("room", id, "Only this one; an empty list when it holds no message.")],
        ])
        .gives(&[(200, Json("RoomStatsList"), "")])
        .refuses(&[Malformed, Invalid, Forbidden]),
    get("/v1/stats/users", |call| Box::pin(stats::users(call)))
        .needs(Permission::Caller)
        .named("listUserStats", "The users with most messages")
        .about("Equal ones in the order of their ids. Users may ask for themselves only.")
        .parameters(&[
            REPLICATED,
            &[
                TOP,
                query("user", id, "Only this one; an empty list for a user who never wrote. Does not name the caller."),
            ],
        ])
        .gives(&[(200, Json("UserStatsList"), "")])
        .refuses(&[Malformed, Invalid, Forbidden]),
    get("/v1/stats/users/{user}/rooms", |call| Box::pin(stats::user_rooms(call)))
        .needs(Permission::Own)
        .named("listUserParticipation", "Where a user wrote")
        .about("For the user, and for administrators.")
        .parameters(&[REPLICATED, PAGE])
        .gives(&[(200, Json("ParticipationList"), "")])
        .refuses(&[Malformed, Invalid, Forbidden]),
    get("/v1/stats/hourly", |call| Box::pin(stats::hourly(call)))
        .needs(Permission::Scope(Scope::Stats))
        .named("listHours", "Messages, users and rooms of each hour")
        .about("In UTC. An hour is in the window as a whole, if it begins in it.")
        .parameters(&[
            REPLICATED,
            &[
                query("from", time, "Hours from the one on in which this lies."),
                query("to", time, "Hours that begin before this time."),
                LIMIT,
            ],
        ])
        .gives(&[(200, Json("HourStatsList"), "")])
        .refuses(&[Malformed, Invalid, Forbidden]),
    get("/v1/stats/active-users", |call| Box::pin(stats::active_users(call)))
        .needs(Permission::Scope(Scope::Stats))
        .named("listActiveUsers", "Who sent something in a window")
        .about(
            "The last 24 hours by default: `from` is a day before `to`, `to` is now. All pages must have the same \
             window.",
        )
        .parameters(&[
            REPLICATED,
            FROM_TO,
            &[
                AFTER,
                query(
                    "limit",
                    |_| limit(0, query::LIMIT_DEFAULT, query::LIMIT_MAX),
                    "Most users of the page; 0 when only the number is wanted.",
                ),
            ],
        ])
        .gives(&[(200, Json("ActiveUsers"), "")])
        .refuses(&[Malformed, Invalid, Forbidden]),
    get("/v1/stats/report", |call| Box::pin(stats::report(call)))
        .needs(Permission::Scope(Scope::Stats))
        .named("getReport", "All statistics in one")
        .about(
            "Numbers and flat rows, for tools; what the other paths answer has more. `GET /metrics` answers the same to \
             those who take JSON. The samples have texts only where the caller may read them.",
        )
        .parameters(&[
            REPLICATED,
            &[
                query("room", id, "The sample room; by default the one with most messages."),
                query("user", id, "The sample user, likewise. Does not name the caller."),
            ],
        ])
        .gives(&[(200, Json("Report"), "")])
        .refuses(&[Malformed, Invalid, Forbidden, UnknownRoom]),
    post("/v1/stats/audit", |call| Box::pin(stats::audit(call)))
        .needs(Permission::Scope(Scope::Stats))
        .named("auditStats", "Recount everything and compare")
        .about("Takes as long as reading everything; one at a time, another one is `overloaded`.")
        .gives(&[(200, Json("Audit"), "Counted, whether it agrees or not.")])
        .refuses_only(&[Invalid, Forbidden, Overloaded, Unavailable, Internal]),
];
