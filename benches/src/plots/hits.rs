//! What a hit costs, by rival; what an answer of the shared table costs, by locking strategy.

use plotters::prelude::*;

use super::frame::{Area, BARE, Bar, INK, Margins, OTHERS, OURS, PRIVATE, bars, draw, legend, letters, said};
use crate::report::Row;
use crate::rivals::Kind;
use plotters::style::text_anchor::HPos;

const SIZE: (u32, u32) = (1440, 800);

/// Where the bars of two threads are paler than those of one.
const PALER: f64 = 0.45;

/// The metrics of one panel: by one thread, by two.
struct Panel {
    title: &'static str,
    workload: &'static str,
    metrics: [&'static str; 2],
    kinds: &'static [Kind],
}

const RIVALS: Panel = Panel {
    title: "A hit (10,000 entries, Zipf; rivals are threads only, not coherent)",
    workload: "zipf10k, rivals",
    metrics: ["hit, one thread", "hit, two threads at once"],
    kinds: &Kind::RIVALS,
};

const STRATEGIES: Panel = Panel {
    title: "shared-catcache: a local miss that the shared table answers",
    workload: "zipf10k",
    metrics: ["shared answer, one thread", "shared answer, two threads at once"],
    kinds: &Kind::STRATEGIES,
};

impl Panel {
    /// What a bar is called in it.
    fn name(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::OneLock => "HashMap, one lock",
            Kind::Partitioned => "HashMap, 128 locks",
            Kind::OursOne => "1 lock",
            Kind::OursSixteen => "16 locks",
            Kind::Ours if self.workload == STRATEGIES.workload => "128 locks (default)",
            kind => kind.name(),
        }
    }
}

/// The plot, if it was measured.
pub(super) fn plot(rows: &[Row]) -> Result<Option<String>, String> {
    let measured = |panel: &Panel| panel.kinds.iter().all(|kind| value(rows, panel, *kind, 0).is_some());
    if !measured(&RIVALS) || !measured(&STRATEGIES) {
        return Ok(None);
    }
    let unverified = rows.iter().any(|row| row.unverified);
    draw(
        SIZE,
        "What a lookup costs",
        "CPU time of one lookup, by one thread and by two at once, all as threads of one process",
        unverified,
        |area| {
            let (legend_area, panels) = area.split_vertically(40);
            let shades = [(INK.mix(1.0), "one thread"), (INK.mix(PALER), "two threads at once")];
            legend(&legend_area, (32, 16), &shades)?;
            let (left, right) = panels.split_horizontally(SIZE.0 / 2);
            draw_panel(&left, rows, &RIVALS)?;
            draw_panel(&right, rows, &STRATEGIES)
        },
    )
    .map(Some)
}

fn value(rows: &[Row], panel: &Panel, kind: Kind, metric: usize) -> Option<f64> {
    let metric = panel.metrics[metric];
    rows.iter()
        .find(|row| row.name == panel.workload && row.metric == metric && row.subject == kind.name())
        .and_then(|row| row.value)
}

fn draw_panel(area: &Area<'_>, rows: &[Row], panel: &Panel) -> Result<(), String> {
    let (head, body) = area.split_vertically(48);
    head.draw(&Text::new(panel.title, (32, 20), letters(20, INK, HPos::Left))).map_err(said)?;
    let mut drawn = Vec::new();
    for (group, kind) in panel.kinds.iter().enumerate() {
        let colour = match kind {
            Kind::Catcache => PRIVATE,
            Kind::BareMap => BARE,
            Kind::Ours | Kind::OursOne | Kind::OursSixteen => OURS,
            Kind::OneLock | Kind::Partitioned | Kind::QuickCache | Kind::Moka | Kind::Papaya => OTHERS,
        };
        for (metric, strength) in [1.0, PALER].into_iter().enumerate() {
            if let Some(value) = value(rows, panel, *kind, metric) {
                let label = if value < 99.95 { format!("{value:.1} ns") } else { format!("{value:.0} ns") };
                drawn.push(Bar { group, place: (metric, 2), value, label, colour, strength });
            }
        }
    }
    let most = drawn.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let names: Vec<String> = panel.kinds.iter().map(|kind| panel.name(*kind).to_owned()).collect();
    let ticks: Vec<(f64, String)> = ticks(most).into_iter().map(|tick| (tick, format!("{tick:.0} ns"))).collect();
    let margins = Margins { names: 230, labels: 100 };
    bars(&body, &names, &drawn, &margins, |value| value / most, &ticks)
}

/// Four or five round numbers from 0 to `most`.
fn ticks(most: f64) -> Vec<f64> {
    let decade = 10f64.powf((most / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * decade).find(|step| most / step < 5.0);
    let step = step.unwrap_or(most);
    (0..6).map(|at| f64::from(at) * step).take_while(|tick| *tick <= most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(95.0), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(450.0), [0.0, 100.0, 200.0, 300.0, 400.0]);
        assert_eq!(ticks(1_100.0), [0.0, 500.0, 1_000.0]);
    }
}
