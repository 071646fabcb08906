//! What a load costs: processor seconds and bytes written, as they were measured, times what they are sold for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::host::machine::CpuUse;
use crate::host::sample::series::average;
use crate::host::sample::{CPU, DISK, GENERATOR, SERVER, SystemSample};
use crate::report::{figure, grouped};

/// What is paid, in any currency; `None` is a part without a price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Price {
    /// For a processor that is busy for an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    core_hour: Option<f64>,
    /// For 10⁹ bytes that are kept for a month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gb_month: Option<f64>,
}

/// The option of everything that tells a price.
#[derive(Debug, Clone, Args)]
pub(crate) struct PriceArgs {
    /// What a busy processor costs for an hour, and 10⁹ bytes for a month (730 hours), or one of them: shows what the load costs
    #[arg(long, value_name = "core-hour=N,gb-month=N")]
    pub(crate) price: Option<Price>,
}

/// The parts of a price, as they are written.
const CORE_HOUR: &str = "core-hour";
const GB_MONTH: &str = "gb-month";
const RULE: &str = "write core-hour=0.04,gb-month=0.08, or one of them, in any currency";

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut core_hour, mut gb_month) = (None, None);
        for part in text.split(',') {
            let (name, number) = part.split_once('=').ok_or_else(|| format!("'{part}' has no =: {RULE}"))?;
            let wanted = match name.trim() {
                CORE_HOUR => &mut core_hour,
                GB_MONTH => &mut gb_month,
                name => return Err(format!("'{name}' has no price here: {RULE}")),
            };
            let number = number.trim().parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0);
            let number = number.ok_or_else(|| format!("{name} must be a number, 0 or more: {RULE}"))?;
            if wanted.replace(number).is_some() {
                return Err(format!("{name} is given twice: {RULE}"));
            }
        }
        Ok(Self { core_hour, gb_month })
    }
}

impl Display for Price {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given: Vec<String> =
            self.parts().into_iter().filter_map(|(name, part)| Some(format!("{name}={}", part?))).collect();
        out.write_str(&given.join(","))
    }
}

impl Price {
    fn parts(&self) -> [(&'static str, Option<f64>); 2] {
        [(CORE_HOUR, self.core_hour), (GB_MONTH, self.gb_month)]
    }

    /// The part that no price was given for; a price has the other one.
    fn missing(&self) -> Option<&'static str> {
        self.parts().into_iter().find_map(|(name, part)| part.is_none().then_some(name))
    }
}

/// What servers, databases, brokers and everything else that is watched used in the measured phase; the load generator
/// does not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    /// Messages or operations that were done meanwhile.
    messages: f64,
    seconds: f64,
    /// Processor seconds, by who used them.
    processor_s: BTreeMap<String, f64>,
    /// Bytes that were written to the disks of this machine, by whomever; `None` where the kernel does not say. What it says of
    /// single processes (`/proc/PID/io`) counts a large folio anew for each byte written to it.
    written_bytes: Option<f64>,
}

impl Usage {
    /// By the samples while `messages` were done. `None` where it is not known which processes the servers are.
    pub(crate) fn of(messages: f64, cpu: &CpuUse, samples: &[SystemSample]) -> Option<Self> {
        let server = cpu.server.filter(|_| messages > 0.0)?;
        let seconds = cpu.seconds;
        let threads = format!("{SERVER} ");
        let is_counted = |who: &&str| *who != GENERATOR && !who.starts_with(&threads);
        let names = samples.iter().flat_map(|sample| sample.values.keys());
        let who = names.filter_map(|name| name.strip_suffix(CPU)?.strip_suffix(' ')).filter(is_counted);
        let who: BTreeSet<&str> = who.collect();
        let used = |who: &str| Some((who.to_owned(), seconds * average(samples, &format!("{who} {CPU}"))?));
        let mut processor_s: BTreeMap<String, f64> = who.into_iter().filter_map(used).collect();
        processor_s.insert(SERVER.to_owned(), server * seconds);
        let written_bytes = average(samples, DISK).map(|rate| 1e6 * rate * seconds);
        Some(Self { messages, seconds, processor_s, written_bytes })
    }

    /// At these prices.
    pub(crate) fn at(&self, price: Price) -> Cost {
        let million = 1e6 / self.messages;
        let hours = self.processor_s.values().sum::<f64>() / 3_600.0;
        let processors = price.core_hour.map(|price| hours * price * million);
        let gigabytes = self.written_bytes.map(|bytes| bytes / BYTES_OF_A_GB);
        let storage = gigabytes.zip(price.gb_month).map(|(written, price)| written * price * million);
        let per_second = self.messages / self.seconds;
        let per_million = processors.unwrap_or(0.0) + storage.unwrap_or(0.0);
        let per_month = per_million * per_second * SECONDS_OF_A_MONTH / 1e6;
        Cost { price, per_million, processors, storage, per_second, per_month }
    }
}

const BYTES_OF_A_GB: f64 = 1e9;
/// 730 hours, a twelfth of a year of 8,760.
const SECONDS_OF_A_MONTH: f64 = 730.0 * 3_600.0;

/// What a load costs, in the currency of the prices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cost {
    price: Price,
    /// A million messages or operations, of what has a price and is known.
    per_million: f64,
    /// The part of it for processors, and the part for what is written, kept for a month; `None` where it has no price or is not
    /// known.
    processors: Option<f64>,
    storage: Option<f64>,
    /// The measured rate, and a month of it.
    per_second: f64,
    per_month: f64,
}

impl Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { price, per_million, processors, storage, per_second, per_month } = self;
        let [million, month] = [per_million, per_month].map(|part| figure(*part));
        let shown = |part: &Option<f64>, price: Option<f64>| match (part, price) {
            (Some(part), _) => figure(*part),
            (None, Some(_)) => "not known".to_owned(),
            (None, None) => "without a price".to_owned(),
        };
        let (processors, disk) = (shown(processors, price.core_hour), shown(storage, price.gb_month));
        let rate = grouped(*per_second);
        write!(
            out,
            "{million} a million (processors {processors}, disk {disk}), {month} a month at {rate}/s, at {price}"
        )?;
        price
            .missing()
            .map_or(Ok(()), |name| write!(out, "; {name} is missing, so this is not the whole price"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_checked() {
        let price: Price = "core-hour=0.04,gb-month=0.08".parse().unwrap();
        assert_eq!(price, Price { core_hour: Some(0.04), gb_month: Some(0.08) });
        assert_eq!(price.to_string().parse(), Ok(price));
        assert_eq!(
            " gb-month=0 , core-hour = 1".parse(),
            Ok(Price { core_hour: Some(1.0), gb_month: Some(0.0) })
        );
        for (wrong, said) in [
            ("", "'' has no ="),
            ("core-hour", "'core-hour' has no ="),
            ("core-hour=1,core-hour=2", "core-hour is given twice"),
            ("core-hour=1,gb-month=cheap", "gb-month must be a number"),
            ("core-hour=-1,gb-month=1", "core-hour must be a number, 0 or more"),
            ("core-hour=NaN,gb-month=1", "core-hour must be a number"),
            ("cpu=1,gb-month=1", "'cpu' has no price here"),
        ] {
            let error = wrong.parse::<Price>().unwrap_err();
            assert!(error.contains(said) && error.ends_with(RULE), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_price_may_have_one_part() {
        let usage = Usage {
            messages: 1e6,
            seconds: 10.0,
            processor_s: [("server".to_owned(), 3_600.0)].into(),
            written_bytes: Some(2e9),
        };
        for (text, processors, storage, shown, missing) in [
            ("core-hour=3", Some(3.0), None, "processors 3.000, disk without a price", "gb-month is missing"),
            ("gb-month=4", None, Some(8.0), "processors without a price, disk 8.000", "core-hour is missing"),
        ] {
            let price: Price = text.parse().unwrap();
            assert_eq!(price.to_string(), text);
            let cost = usage.at(price);
            assert_eq!((cost.processors, cost.storage), (processors, storage), "{text}");
            assert_eq!(Some(cost.per_million), processors.or(storage), "{text}");
            let said = cost.to_string();
            assert!(said.contains(shown) && said.contains(&format!("at {text}; {missing}")), "{said}");
            let json = serde_json::to_value(&cost).unwrap();
            assert_eq!(serde_json::from_value::<Cost>(json).unwrap(), cost);
        }
        let unknown = Usage { written_bytes: None, ..usage };
        let said = unknown.at("gb-month=4".parse().unwrap()).to_string();
        assert!(said.contains("disk not known") && said.contains("core-hour is missing"), "{said}");
    }

    fn samples(values: &[(&str, f64)]) -> Vec<SystemSample> {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let sample = SystemSample { at_s: 1.0, values, ..SystemSample::default() };
        vec![sample.clone(), SystemSample { at_s: 2.0, ..sample }]
    }

    #[test]
    fn what_is_used_is_paid_once() {
        let cpu =
            CpuUse { cores: 4, seconds: 10.0, generator: 1.0, server: Some(0.5), machine: 2.0, stolen: 0.0 };
        let samples = samples(&[
            ("server CPU", 0.4),
            ("server workers CPU", 0.3),
            ("server hottest thread %", 30.0),
            ("generator hottest thread %", 90.0),
            ("generator CPU", 1.0),
            ("postgres CPU", 0.25),
            ("disk MB/s", 2.0),
        ]);
        let usage = Usage::of(50_000.0, &cpu, &samples).unwrap();
        let used = [("postgres".to_owned(), 2.5), ("server".to_owned(), 5.0)];
        assert_eq!(usage.processor_s, used.into(), "the server's own figure is exact");
        assert_eq!(usage.written_bytes, Some(20e6));
        // 7.5 s are 1/480 h; a million are twenty times as many: 1/24 h at 72, and 0.4 GB at 5.
        let cost = usage.at(Price { core_hour: Some(72.0), gb_month: Some(5.0) });
        assert!(
            (cost.processors.unwrap() - 3.0).abs() < 1e-9 && (cost.storage.unwrap() - 2.0).abs() < 1e-9,
            "{cost:?}"
        );
        // 5,000/s are 13,140 million in 730 hours.
        assert!(
            (cost.per_million - 5.0).abs() < 1e-9 && (cost.per_month - 65_700.0).abs() < 1e-6,
            "{cost:?}"
        );
        assert_eq!(
            cost.to_string(),
            "5.000 a million (processors 3.000, disk 2.000), 65,700 a month at 5,000/s, at core-hour=72,gb-month=5"
        );
        let json = serde_json::to_value(&usage).unwrap();
        assert_eq!(serde_json::from_value::<Usage>(json).unwrap(), usage);
        assert_eq!(Usage::of(0.0, &cpu, &samples), None);
        assert_eq!(Usage::of(1.0, &CpuUse { server: None, ..cpu }, &samples), None);
    }
}
