//! What was measured, for machines and for people.
//!
//! A [`Row`] is one figure. Its JSON is documented field by field and stays as it is.

use std::collections::BTreeMap;
use std::fmt;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use crate::script::{LeftOut, Script};
use crate::statistics::Summary;

/// Which figure of a row a target is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Value,
    Ratio,
}

/// What a figure is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    on: On,
    least: bool,
    limit: f64,
}

impl Target {
    /// The value is at most `limit`.
    pub const fn value_at_most(limit: f64) -> Target {
        Target { on: On::Value, least: false, limit }
    }

    /// The value is at least `limit`.
    pub const fn value_at_least(limit: f64) -> Target {
        Target { on: On::Value, least: true, limit }
    }

    /// The ratio is at most `limit`.
    pub const fn ratio_at_most(limit: f64) -> Target {
        Target { on: On::Ratio, least: false, limit }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (on, sign) = (if self.on == On::Value { "value" } else { "ratio" }, if self.least { ">=" } else { "<=" });
        write!(f, "{on} {sign} {}", figure(Some(self.limit)))
    }
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The workload: `zipf10k`, `trace partscan, 48 backends`.
    pub name: String,
    /// What was measured.
    pub subject: String,
    /// Which property of it.
    pub metric: String,
    /// The unit of `value`.
    pub unit: String,
    /// The median over the rounds; null if it was not measured.
    pub value: Option<f64>,
    /// The median over the rounds of the ratio to the baseline that `note` names, in the same round; null if there is none.
    pub ratio: Option<f64>,
    /// The least and the greatest of what `ratio` is the median of, or, where there is no ratio, of what `value` is the
    /// median of; null for what was counted exactly.
    pub spread: Option<[f64; 2]>,
    /// What is to be reached, as `value <= 64` or `ratio <= 1.3`; null if nothing is.
    pub target: Option<String>,
    /// Was it reached? Null if nothing is to be reached or nothing was measured.
    pub met: Option<bool>,
    /// The denominator, the method, or why nothing was measured. Empty if there is nothing to say.
    pub note: String,
    /// The code that was measured has not passed the conformance suite.
    pub unverified: bool,
}

impl Row {
    /// A figure without a value.
    pub fn new(name: impl Into<String>, subject: &str, metric: &str, unit: &str) -> Row {
        Row {
            name: name.into(),
            subject: subject.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            value: None,
            ratio: None,
            spread: None,
            target: None,
            met: None,
            note: String::new(),
            unverified: false,
        }
    }

    /// With a value that was counted exactly.
    #[must_use]
    pub fn counted(mut self, value: Option<f64>) -> Row {
        self.value = value;
        self
    }

    /// With values of several rounds.
    #[must_use]
    pub fn measured(mut self, summary: Option<Summary>) -> Row {
        self.value = summary.map(|summary| summary.median);
        self.spread = summary.map(|summary| summary.spread);
        self
    }

    /// With ratios of several rounds.
    #[must_use]
    pub fn compared(mut self, summary: Option<Summary>) -> Row {
        self.ratio = summary.map(|summary| summary.median);
        self.spread = summary.map(|summary| summary.spread).or(self.spread);
        self
    }

    /// With something to reach. After the figures.
    #[must_use]
    pub fn target(mut self, target: Target) -> Row {
        let reached = match target.on {
            On::Value => self.value,
            On::Ratio => self.ratio,
        };
        self.met = reached.map(|figure| if target.least { figure >= target.limit } else { figure <= target.limit });
        self.target = Some(target.to_string());
        self
    }

    /// With something to say.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }
}

/// What of a trace was not played.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotPlayed {
    /// The trace.
    pub trace: String,
    /// For comparison, what was played: changes of rows, each of which is a message to all backends at the commit.
    pub messages_played: u32,
    /// Searches of lists.
    pub lists: u32,
    /// Messages of the relation cache.
    pub relation_messages: u32,
    /// Messages of in-place updates, which were played at the commit.
    pub in_place: u32,
    /// Rows that PostgreSQL had from a list, and a replay misses.
    pub rows_from_lists: u32,
}

impl NotPlayed {
    /// Of this trace.
    pub fn of(script: &Script) -> NotPlayed {
        let LeftOut { lists, relation_messages, in_place, rows_from_lists } = script.left_out;
        NotPlayed {
            trace: script.name.clone(),
            messages_played: script.changes,
            lists,
            relation_messages,
            in_place,
            rows_from_lists,
        }
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The figures.
    pub rows: Vec<Row>,
    /// What the replays left out, trace by trace.
    pub not_played: Vec<NotPlayed>,
    /// Was it broken off before everything was measured?
    pub broken_off: bool,
    /// How long it took.
    pub seconds: f64,
}

impl Report {
    /// Marks every figure: the code has not passed.
    pub fn mark_unverified(&mut self) {
        for row in &mut self.rows {
            row.unverified = true;
        }
    }

    /// Were all targets reached? `None` if something was not measured or is missing.
    pub fn targets_met(&self) -> Option<bool> {
        let targets: Vec<Option<bool>> =
            self.rows.iter().filter(|row| row.target.is_some()).map(|row| row.met).collect();
        if targets.contains(&Some(false)) {
            return Some(false);
        }
        (!targets.is_empty() && !self.broken_off && targets.iter().all(Option::is_some)).then_some(true)
    }

    /// The figures that have something to reach, for one screen.
    pub fn targets(&self) -> Table {
        self.table(self.rows.iter().filter(|row| row.target.is_some()))
    }

    /// All figures but those of the traces.
    pub fn figures(&self) -> Table {
        self.table(self.rows.iter().filter(|row| trace_of(row).is_none()))
    }

    /// The figures of the traces of one metric, a line for each trace and number of backends, a column for each subject:
    /// the value, and the ratio to the baseline behind it.
    pub fn traces(&self, metric: &str) -> Table {
        let rows: Vec<(&str, &Row)> =
            self.rows.iter().filter(|row| row.metric == metric).filter_map(|row| Some((trace_of(row)?, row))).collect();
        let mut subjects: Vec<&str> = Vec::new();
        let mut lines: Vec<(&str, BTreeMap<&str, String>)> = Vec::new();
        for (name, row) in &rows {
            if !subjects.contains(&row.subject.as_str()) {
                subjects.push(&row.subject);
            }
            if lines.last().is_none_or(|(last, _)| last != name) {
                lines.push((name, BTreeMap::new()));
            }
            let ratio = row.ratio.map(|ratio| format!(" ({}×)", figure(Some(ratio)))).unwrap_or_default();
            if let Some((_, cells)) = lines.last_mut() {
                cells.insert(&row.subject, figure(row.value) + &ratio);
            }
        }
        let unit = rows.first().map_or("", |(_, row)| row.unit.as_str());
        let mut table = empty_table();
        let title = format!("{metric}, {unit}{}", if self.unverified() { " (unverified)" } else { "" });
        table.set_header([title.as_str()].into_iter().chain(subjects.iter().copied()).map(bold));
        for (name, cells) in lines {
            let columns = subjects.iter().map(|subject| {
                Cell::new(cells.get(subject).map_or("", String::as_str)).set_alignment(CellAlignment::Right)
            });
            let name = if self.unverified() { format!("{name} (unverified)") } else { name.to_owned() };
            table.add_row([Cell::new(name)].into_iter().chain(columns));
        }
        table
    }

    /// All tables, one after another: the figures, then the traces metric by metric.
    pub fn tables(&self) -> Vec<Table> {
        let mut metrics: Vec<&str> = Vec::new();
        for row in self.rows.iter().filter(|row| trace_of(row).is_some()) {
            if !metrics.contains(&row.metric.as_str()) {
                metrics.push(&row.metric);
            }
        }
        [self.figures()].into_iter().chain(metrics.into_iter().map(|metric| self.traces(metric))).collect()
    }

    /// What the replays left out, in one sentence for each kind of it.
    pub fn left_out(&self) -> String {
        let sum = |of: fn(&NotPlayed) -> u32| self.not_played.iter().map(of).sum::<u32>();
        format!(
            "Left out of the {} traces: {} searches of lists (and the {} rows that only a list had brought are loaded), \
             {} messages of the relation cache. Played: {} messages of the catcaches, {} of which, of in-place updates, are \
             sent at the commit.",
            self.not_played.len(),
            sum(|trace| trace.lists),
            sum(|trace| trace.rows_from_lists),
            sum(|trace| trace.relation_messages),
            sum(|trace| trace.messages_played),
            sum(|trace| trace.in_place),
        )
    }

    fn unverified(&self) -> bool {
        self.rows.iter().any(|row| row.unverified)
    }

    fn table<'a>(&self, rows: impl Iterator<Item = &'a Row>) -> Table {
        let mut table = empty_table();
        let mut header = vec!["workload", "subject", "metric", "value", "ratio", "spread", "target", "note"];
        if self.unverified() {
            header.insert(0, "");
        }
        table.set_header(header.into_iter().map(bold));
        for row in rows {
            let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
            let value = match row.value {
                Some(_) => format!("{} {}", figure(row.value), row.unit),
                None => "–".to_owned(),
            };
            let spread = row.spread.map(|[low, high]| format!("{}..{}", figure(Some(low)), figure(Some(high))));
            let target = row.target.as_ref().map(|target| {
                let met = match row.met {
                    Some(true) => "met",
                    Some(false) => "missed",
                    None => "not measured",
                };
                format!("{target}: {met}")
            });
            let mut cells = vec![
                Cell::new(&row.name),
                Cell::new(&row.subject),
                Cell::new(&row.metric),
                right(value),
                right(row.ratio.map(|ratio| figure(Some(ratio))).unwrap_or_default()),
                right(spread.unwrap_or_default()),
                Cell::new(target.unwrap_or_default()),
                Cell::new(&row.note),
            ];
            if self.unverified() {
                cells.insert(0, Cell::new(if row.unverified { "unverified" } else { "" }));
            }
            table.add_row(cells);
        }
        table
    }
}

fn empty_table() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table
}

fn bold(text: &str) -> Cell {
    Cell::new(text).add_attribute(Attribute::Bold)
}

/// The workload without the word `trace`, if it is one.
fn trace_of(row: &Row) -> Option<&str> {
    row.name.strip_prefix("trace ")
}

/// A figure with three significant digits, or all that are before the point.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value == value.trunc() || value.abs() >= 1e3 => format!("{value:.0}"),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit() -> Row {
        let ratio = Summary { median: 1.2, spread: [1.1, 1.4] };
        Row::new("zipf10k", "shared-catcache", "hit", "ns").counted(Some(7.25)).compared(Some(ratio))
    }

    fn report(rows: Vec<Row>) -> Report {
        Report { rows, ..Report::default() }
    }

    #[test]
    fn the_fields_of_a_row_stay_as_they_are() {
        let row = hit().target(Target::ratio_at_most(1.3)).note("ratio to the bare private map");
        let expected = serde_json::json!({
            "name": "zipf10k",
            "subject": "shared-catcache",
            "metric": "hit",
            "unit": "ns",
            "value": 7.25,
            "ratio": 1.2,
            "spread": [1.1, 1.4],
            "target": "ratio <= 1.30",
            "met": true,
            "note": "ratio to the bare private map",
            "unverified": false,
        });
        assert_eq!(serde_json::to_value(row).unwrap(), expected);
        let nothing = serde_json::to_value(Row::new("a", "b", "c", "d")).unwrap();
        assert!(["value", "ratio", "spread", "target", "met"].iter().all(|field| nothing[field].is_null()));
    }

    #[test]
    fn what_was_not_measured_reaches_nothing() {
        assert_eq!(Row::new("a", "b", "c", "d").target(Target::value_at_most(64.0)).met, None);
        assert_eq!(hit().target(Target::value_at_least(7.25)).met, Some(true));
        assert_eq!(hit().target(Target::value_at_least(7.3)).met, Some(false));
        assert_eq!(hit().target(Target::value_at_most(7.2)).met, Some(false));
        assert_eq!(report(vec![hit()]).targets_met(), None);
        let met = hit().target(Target::value_at_most(8.0));
        let unmeasured = Row::new("a", "b", "c", "d").target(Target::value_at_most(8.0));
        assert_eq!(report(vec![met.clone()]).targets_met(), Some(true));
        assert_eq!(report(vec![met.clone(), unmeasured.clone()]).targets_met(), None);
        assert_eq!(report(vec![unmeasured, hit().target(Target::value_at_most(1.0))]).targets_met(), Some(false));
        assert_eq!(Report { broken_off: true, ..report(vec![met]) }.targets_met(), None);
    }

    #[test]
    fn every_line_says_that_it_is_unverified() {
        let traced = Row::new("trace simple, 2 backends", "one lock", "lookup", "ns").counted(Some(1234.5));
        let mut report = report(vec![hit().target(Target::ratio_at_most(1.3)), traced]);
        assert!(!report.figures().to_string().contains("unverified"));
        report.mark_unverified();
        for table in [report.targets(), report.figures(), report.traces("lookup")] {
            let text = table.to_string();
            assert!(text.lines().filter(|line| line.contains("zipf") || line.contains("simple")).count() > 0);
            let unmarked = text.lines().filter(|line| line.contains("zipf") || line.contains("simple, 2"));
            assert!(unmarked.into_iter().all(|line| line.contains("unverified")), "{text}");
        }
    }

    #[test]
    fn traces_stand_side_by_side() {
        let row = |subject: &str, backends: u32, value: f64| {
            Row::new(format!("trace simple, {backends} backends"), subject, "lookup", "ns").counted(Some(value))
        };
        let report = report(vec![row("a", 1, 1.0), row("b", 1, 22.25), row("a", 2, 333.3)]);
        let text = report.traces("lookup").to_string();
        assert_eq!(text.lines().filter(|line| line.contains("simple")).count(), 2);
        assert!(text.contains("22.2") && text.contains("333"), "{text}");
    }

    #[test]
    fn figures_are_short() {
        let shown = [0.0, 0.5, 1.25, 64.0, 99.96, 123.4, 123_456.7].map(|value| figure(Some(value)));
        assert_eq!(shown, ["0", "0.50", "1.25", "64", "100.0", "123", "123457"]);
        assert_eq!(figure(None), "–");
    }
}
