package reconnect

// WithDefaults returns p with defaults for all fields that are not set.
func WithDefaults(p Pace) Pace { return p.withDefaults() }
