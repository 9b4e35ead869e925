//! Tables of aligned columns, and figures in the unit that suits them.

use std::fmt;

/// Rows of cells; a head that begins with '>' aligns its column to the right.
pub struct Table {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<const N: usize>(heads: [&str; N]) -> Table {
        let names = heads.iter().map(|head| head.trim_start_matches('>'));
        Table {
            right: heads.iter().map(|head| head.starts_with('>')).collect(),
            rows: vec![names.map(str::to_owned).collect()],
        }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [impl Into<String>; N]) {
        self.rows.push(cells.map(Into::into).into_iter().collect());
    }

    /// Whether it has a head alone.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.right.len()).map(|c| self.width(c)).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                line += &if *right {
                    format!("{cell:>width$}  ")
                } else {
                    format!("{cell:<width$}  ")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A number of things of which one is called `what`.
pub fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Bytes in decimal units.
pub fn size(bytes: u64) -> String {
    scaled(bytes as f64, "B")
}

/// bit/s in decimal units.
pub fn rate(bps: u64) -> String {
    scaled(bps as f64, "bit/s")
}

fn scaled(value: f64, unit: &str) -> String {
    // 999.95 would be shown as 1000.0, so the next unit is used.
    let mut value = value;
    for prefix in ["", "k", "M", "G"] {
        if value < 999.95 {
            let digits = usize::from(!prefix.is_empty());
            return format!("{value:.digits$} {prefix}{unit}");
        }
        value /= 1e3;
    }
    format!("{value:.1} T{unit}")
}

/// A duration in its two largest units.
pub fn span(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_their_widest_cell() {
        let mut table = Table::new(["PATH", ">RATE"]);
        table.row(["sat", "1.0 kbit/s"]);
        table.row(["terrestrial", "40.0 Mbit/s"]);
        let expected = "\
PATH                RATE
sat           1.0 kbit/s
terrestrial  40.0 Mbit/s
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn one_thing_has_no_plural() {
        let told = [0, 1, 2].map(|number| counted(number, "bundle"));
        assert_eq!(told, ["0 bundles", "1 bundle", "2 bundles"]);
    }

    #[test]
    fn figures_have_the_unit_that_suits_them() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_500), "1.5 kB");
        assert_eq!(size(999_960), "1.0 MB");
        assert_eq!(rate(140_000_000), "140.0 Mbit/s");
        assert_eq!(span(59.9), "59 s");
        assert_eq!(span(7_260.0), "2 h 1 min");
    }
}
