//! Bytes against backends, both in powers of ten, so that one sees the slope of each.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::frame::{BARE, GRID, INK, OURS, PALE, PRIVATE, draw, letters, said};
use crate::report::Row;
use crate::rivals::Kind;
use crate::suite::memory::MEMORY;

/// The trace whose memory is shown.
const TRACE: &str = "trace partscan, ";

const SIZE: (u32, u32) = (1200, 720);

/// A line: a subject's megabytes by backends.
struct Line {
    name: &'static str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// The plot, if it was measured.
pub(super) fn plot(rows: &[Row]) -> Result<Option<String>, String> {
    let mut lines = Vec::new();
    for (kind, colour) in [(Kind::Catcache, PRIVATE), (Kind::BareMap, BARE), (Kind::Ours, OURS)] {
        let of_kind = rows.iter().filter(|row| row.metric == MEMORY && row.subject == kind.name());
        let points: Vec<(f64, f64)> = of_kind.filter_map(|row| Some((backends(&row.name)?, row.value?))).collect();
        if points.len() < 2 {
            return Ok(None);
        }
        lines.push(Line { name: kind.name(), colour, points });
    }
    let unverified = rows.iter().any(|row| row.unverified);
    draw(
        SIZE,
        "Catalog cache: memory against backends",
        "Scan of a table with 10,000 partitions (trace of PostgreSQL 15), all backends together",
        unverified,
        |area| chart(area, &lines),
    )
    .map(Some)
}

fn chart(area: &super::frame::Area<'_>, lines: &[Line]) -> Result<(), String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most = points().map(|point| point.0).fold(1.0, f64::max);
    let (low, high) = points().fold((f64::MAX, 0.0), |(low, high), point| (point.1.min(low), point.1.max(high)));
    let decades = 10f64.powf(low.log10().floor())..10f64.powf(high.log10().ceil());
    let mut numbers: Vec<f64> = points().map(|point| point.0).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let mut chart = ChartBuilder::on(area)
        .margin_top(16)
        .margin_left(24)
        .margin_right(330)
        .margin_bottom(12)
        .x_label_area_size(72)
        .y_label_area_size(104)
        .build_cartesian_2d((1.0..most * 1.05).log_scale().with_key_points(numbers), decades.log_scale())
        .map_err(said)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_desc("backends")
        .axis_desc_style(letters(20, INK, HPos::Center))
        .label_style(("sans-serif", 20).into_font().color(&PALE))
        .x_label_formatter(&|backends| format!("{backends:.0}"))
        .y_label_formatter(&|megabytes| bytes(*megabytes))
        .draw()
        .map_err(said)?;
    for line in lines {
        chart.draw_series(LineSeries::new(line.points.iter().copied(), line.colour.stroke_width(4))).map_err(said)?;
        let dots = line.points.iter().map(|point| Circle::new(*point, 6, line.colour.filled()));
        chart.draw_series(dots).map_err(said)?;
    }
    // What a line is called stands at its end; the ends may lie close together.
    let mut ends: Vec<(i32, String, RGBColor)> = Vec::new();
    let mut right = 0;
    for line in lines {
        let Some(last) = line.points.last() else { continue };
        let (x, y) = chart.backend_coord(last);
        right = x;
        ends.push((y, format!("{}: {}", line.name, bytes(last.1)), line.colour));
    }
    ends.sort_by_key(|end| end.0);
    let mut above = i32::MIN / 2;
    let origin = area.get_base_pixel();
    for (y, text, colour) in ends {
        let y = y.max(above + 28);
        above = y;
        let at = (right + 18 - origin.0, y - origin.1);
        area.draw(&Text::new(text, at, letters(20, colour, HPos::Left))).map_err(said)?;
    }
    Ok(())
}

/// The number of backends in a row's name.
fn backends(name: &str) -> Option<f64> {
    name.strip_prefix(TRACE)?.split(' ').next()?.parse().ok()
}

/// Megabytes, in the unit that suits them.
fn bytes(megabytes: f64) -> String {
    match megabytes {
        few if few < 0.9995 => format!("{:.0} kB", few * 1e3),
        few if few < 9.95 => format!("{few:.1} MB").replace(".0 MB", " MB"),
        many if many < 999.5 => format!("{many:.0} MB"),
        many => format!("{:.1} GB", many / 1e3).replace(".0 GB", " GB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_short() {
        let shown = [0.1, 1.0, 8.54, 10.0, 569.4, 1_000.0, 2_372.0].map(bytes);
        assert_eq!(shown, ["100 kB", "1 MB", "8.5 MB", "10 MB", "569 MB", "1 GB", "2.4 GB"]);
        assert_eq!((backends("trace partscan, 48 backends"), backends("trace d_part, 1 backend")), (Some(48.0), None));
    }
}
