//! What each command needs.

use super::parse::{Command, Selection};
use super::responses::Name;
use crate::auth::caller::{Caller, Requirement};
use crate::auth::{Right, Scope};
use crate::problem::Problem;

/// Refuses a command that its caller may not give. `client` is whom the connection registered as.
pub(super) fn authorize(caller: &Caller, command: &Command<'_>, client: Option<u64>) -> Result<(), Problem> {
    if caller.is_administrator() {
        return Ok(());
    }
    let is_client = |number: u64| caller.may(Requirement::Client(Name::of(number).as_str()));
    match command {
        Command::Auth { .. } | Command::Unregister | Command::Ping | Command::Foreign | Command::Bad => {
            Ok(())
        }
        // Those that the caller may not know of are left out.
        Command::ListQueues => Ok(()),
        Command::ListHolding { receiver } => is_client(*receiver),
        Command::Register { client } => is_client(*client),
        Command::CreateQueue | Command::DeleteQueue { .. } => caller.may(Requirement::Admin),
        Command::ListUsers => caller.may(Requirement::Scope(Scope::Clients)),
        Command::Send { queue, sender, .. } => {
            is_client(*sender)?;
            caller.may(Requirement::Queue(Right::Write, Name::of(*queue).as_str()))
        }
        Command::Get(selection) | Command::Read(selection) => {
            let Selection { queue, receiver, .. } = selection;
            client.or(*receiver).map_or(Ok(()), is_client)?;
            match queue {
                Some(queue) => caller.may(Requirement::Queue(Right::Read, Name::of(*queue).as_str())),
                None => caller.may(Requirement::AllQueues(Right::Read)),
            }
        }
    }
}
