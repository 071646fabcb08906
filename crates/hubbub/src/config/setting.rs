//! What a setting is, and how the table of all settings becomes fields and their metadata.

use hubbub_core::url::masked;

use super::settings::Config;
use super::values::SettingValue;
use super::{Source, WrittenSettings};

/// Metadata of a setting.
pub(crate) struct Setting {
    /// Section and name in the file.
    pub(crate) key: &'static str,
    /// Short name in the environment and of the flag, for the most important settings.
    pub(crate) short: &'static [&'static str],
    pub(crate) help: &'static [&'static str],
    pub(crate) show: fn(&Config) -> String,
    pub(crate) source: fn(&Config) -> &Source,
}

impl Setting {
    /// `HUBBUB_` and the flag's name, or the key.
    pub(crate) fn environment_name(&self) -> String {
        variable_of(self.short.first().unwrap_or(&self.key))
    }
}

/// The variable of a key or a flag.
pub(super) fn variable_of(name: &str) -> String {
    format!("HUBBUB_{}", name.replace(['.', '-'], "_").to_ascii_uppercase())
}

/// A value and its source.
#[derive(Debug, Clone)]
pub(crate) struct Sourced<T> {
    pub(super) value: T,
    pub(super) source: Source,
}

impl<T> std::ops::Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The table of settings: for each its description, field, type, default, perhaps a maximum, key, and perhaps a short name.
macro_rules! settings {
    ($(
        $(#[doc = $help:literal])+
        $field:ident: $kind:ty = $default:expr $(, from 1 to $most:expr)? => $key:literal $(, $short:literal)?;
    )*) => {
        /// The whole configuration.
        #[derive(Debug, Clone)]
        pub(crate) struct Config { $($(#[doc = $help])+ pub(crate) $field: Sourced<$kind>,)* }

        /// All settings, in the order of the file.
        pub(crate) const SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            short: &[$($short)?],
            help: &[$($help),+],
            show: |config| config.$field.value.show(),
            source: |config| &config.$field.source,
        },)*];

        impl Config {
            /// Parses `written`, with defaults for the rest. Errors go to `faults`.
            pub(super) fn from_written(written: &WrittenSettings, faults: &mut Vec<String>) -> Self {
                Self { $($field: {
                    let most = None::<usize>$(.or(Some($most)))?;
                    read::<$kind>($key, || $default, most, written, faults)
                },)* }
            }
        }
    };
}
pub(super) use settings;

/// Parses one setting. With `most` it is a number or duration from 1 to that, where [`UNLIMITED`] is no limit.
pub(super) fn read<T: SettingValue>(
    key: &'static str,
    default: impl FnOnce() -> T,
    most: Option<usize>,
    written: &WrittenSettings,
    faults: &mut Vec<String>,
) -> Sourced<T> {
    let Some(written) = written.get(key) else {
        return Sourced { value: default(), source: Source::Default };
    };
    let or_off = if T::IS_OPTIONAL { ", or off" } else { "" };
    let value = T::parse(&written.value).ok_or_else(|| format!("{}{or_off}", T::RULE));
    let value = value.and_then(|value| match (most, value.number()) {
        (Some(UNLIMITED), Some(0)) => Err(T::NOT_ZERO.to_owned()),
        (Some(most), Some(number)) if !(1..=most).contains(&number) => Err(format!("must be 1 to {most}")),
        _ => Ok(value),
    });
    match value {
        Ok(value) => Sourced { value, source: written.source.clone() },
        Err(rule) => {
            faults.push(format!("{key} {rule}, not '{}' ({})", masked(&written.value), written.source));
            Sourced { value: default(), source: Source::Default }
        }
    }
}

/// A maximum that is none.
pub(super) const UNLIMITED: usize = usize::MAX;
