//! What the dashboard shows.

use hubbub_core::ErrorCode::*;

use super::super::endpoint::{Endpoint, delete, get};
use super::super::operation::{LIMIT, Media::*, query};
use super::super::permission::Permission;
use super::super::spec::schemas::text;
use super::super::{connections, watching};

pub(super) static ENDPOINTS: &[Endpoint] = &[
    get("/v1/stats/live", |call| Box::pin(watching::watch(call)))
        .without_head()
        .needs(Permission::Admin)
        .named("watchServer", "The server's figures as they go on")
        .about(
            "Server-Sent Events. `begun` has the last hour; `sample` follows every second, in the order of `series`; \
             `state` comes at the beginning and every five seconds. Whoever reads slowly misses samples. A stream that \
             breaks is opened anew: it begins with the last hour again.",
        )
        .gives(&[(
            200,
            Events(&[("begun", "Begun"), ("sample", "Sample"), ("state", "ServerState"), ("error", "LineProblem")]),
            "",
        )])
        .refuses_only(&[Invalid, Forbidden]),
    get("/v1/connections", |call| Box::pin(connections::list(call)))
        .needs(Permission::Admin)
        .named("listConnections", "Open sockets and streams")
        .about("Those of this server, the oldest first. Requests that are answered and over are not among them.")
        .parameters(&[&[query("after", text, "The `next` of the page before."), LIMIT]])
        .gives(&[(200, Json("ConnectionList"), "")])
        .refuses_only(&[Invalid, Forbidden]),
    delete("/v1/connections/{connection}", |call| Box::pin(connections::close(call)))
        .needs(Permission::Admin)
        .named("closeConnection", "Close a socket or a stream")
        .about(
            "What was read is still answered; a WebSocket closes with 4410. Clients come back by themselves. To keep \
             somebody out, revoke the key or the tokens.",
        )
        .gives(&[(204, Nothing, "It is closing.")])
        .refuses_only(&[Invalid, Forbidden, NotFound]),
];
