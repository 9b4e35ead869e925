//! A position that a receiver gave.

use thiserror::Error;

/// Faster than any road vehicle, m/s: a higher speed comes from a corrupt message or a jump of the
/// receiver.
pub const MAX_SPEED_MPS: f64 = 150.0;
/// Of more, nothing could be said at all.
const MAX_ACCURACY_M: f64 = 1e7;
/// Where a vehicle, or what flies, can be, m.
const ALTITUDES_M: std::ops::RangeInclusive<f64> = -1_000.0..=30_000.0;
/// The error of dead reckoning, m: it continues for some seconds after satellites are lost, and
/// drifts.
pub(crate) const ESTIMATED_M: f64 = 30.0;

/// A position in WGS 84. What the receiver did not give is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fix {
    /// GNSS time, UTC, ms since 1970.
    pub time_ms: Option<u64>,
    /// Degrees east.
    pub longitude: f64,
    /// Degrees north.
    pub latitude: f64,
    /// Height above mean sea level, m.
    pub altitude_m: Option<f64>,
    /// Speed over ground, m/s.
    pub speed_mps: Option<f64>,
    /// Course over ground from true north, degrees.
    pub heading_deg: Option<f64>,
    /// One standard deviation of the horizontal error, m.
    pub accuracy_m: Option<f64>,
}

/// Why a position cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FixError {
    #[error("no place on Earth: longitude {0}, latitude {1}")]
    Place(f64, f64),
    #[error("speed {0} m/s is not between 0 and {MAX_SPEED_MPS}")]
    Speed(f64),
    #[error("heading {0} is not between 0 and 360 degrees")]
    Heading(f64),
    #[error("accuracy {0} m is not between 0 and {MAX_ACCURACY_M}")]
    Accuracy(f64),
}

impl Fix {
    /// The fix, if it is possible. An impossible altitude is left out: with low satellites it is
    /// wrong long before the position is.
    ///
    /// # Errors
    /// Names the first figure that cannot be.
    pub fn checked(self) -> Result<Fix, FixError> {
        // A NaN is in no range.
        let within = |value: Option<f64>, least: f64, most: f64| {
            value.filter(|value| !(least..=most).contains(value))
        };
        let (east, north) = (self.longitude, self.latitude);
        if !(-180.0..=180.0).contains(&east) || !(-90.0..=90.0).contains(&north) {
            return Err(FixError::Place(east, north));
        }
        if let Some(speed) = within(self.speed_mps, 0.0, MAX_SPEED_MPS) {
            return Err(FixError::Speed(speed));
        }
        if let Some(heading) = within(self.heading_deg, 0.0, 360.0) {
            return Err(FixError::Heading(heading));
        }
        if let Some(accuracy) = within(self.accuracy_m, 0.0, MAX_ACCURACY_M) {
            return Err(FixError::Accuracy(accuracy));
        }
        let possible = |altitude: &f64| ALTITUDES_M.contains(altitude);
        Ok(Fix {
            altitude_m: self.altitude_m.filter(possible),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_vehicle_can_be_at_is_refused_by_name() {
        let good = Fix {
            longitude: 6.925,
            latitude: 46.3167,
            speed_mps: Some(27.0),
            heading_deg: Some(360.0),
            ..Fix::default()
        };
        assert_eq!(good.checked(), Ok(good));
        let wrong = [
            (
                Fix {
                    latitude: f64::NAN,
                    ..good
                },
                "no place",
            ),
            (
                Fix {
                    longitude: 180.1,
                    ..good
                },
                "no place",
            ),
            (
                Fix {
                    speed_mps: Some(151.0),
                    ..good
                },
                "speed",
            ),
            (
                Fix {
                    heading_deg: Some(-1.0),
                    ..good
                },
                "heading",
            ),
            (
                Fix {
                    accuracy_m: Some(f64::INFINITY),
                    ..good
                },
                "accuracy",
            ),
        ];
        for (fix, about) in wrong {
            let error = fix.checked().unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
        let high = Fix {
            altitude_m: Some(1e6),
            ..good
        };
        assert_eq!(high.checked(), Ok(good));
    }
}
