//! Which members the body of settings may have. A misspelt one would change nothing, and nobody would know.

use std::collections::{BTreeMap, BTreeSet};

use hubbub_core::FieldError;
use hubbub_core::suggestion::nearest;
use hubbub_core::text::repeated;
use schemars::{JsonSchema, schema_for};
use serde::de::IgnoredAny;

use crate::json::object_or_default;
use crate::problem::Problem;

/// Unknown members that are named at most.
const NAMED_MAX: usize = 10;

/// The members of some settings, and of the answer that shows them.
pub(super) struct KnownMembers {
    settings: BTreeSet<String>,
    shown: BTreeSet<String>,
}

impl KnownMembers {
    /// As the schemas of the settings and of the answer say.
    pub(super) fn of<Settings: JsonSchema, Shown: JsonSchema>() -> Self {
        Self { settings: members::<Settings>(), shown: members::<Shown>() }
    }

    /// Notes the members of a body that there are not. What else an answer shows is passed over, so that it may be sent back
    /// changed.
    pub(super) fn check(&self, body: &[u8], faults: &mut Vec<FieldError>) -> Result<(), Problem> {
        let body: BTreeMap<String, IgnoredAny> = object_or_default(body)?;
        let is_known = |name: &String| self.settings.contains(name) || self.shown.contains(name);
        let unknown = body.into_keys().filter(|name| !is_known(name));
        faults.extend(unknown.take(NAMED_MAX).map(|name| {
            let meant = nearest(&name, self.settings.iter().map(|known| (known, known)));
            let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            FieldError::new("body", format!("has no member '{}'{meant}", repeated(&name)))
        }));
        Ok(())
    }
}

fn members<T: JsonSchema>() -> BTreeSet<String> {
    let schema = schema_for!(T);
    let members = schema.get("properties").and_then(|members| members.as_object());
    members.into_iter().flat_map(|members| members.keys().cloned()).collect()
}
