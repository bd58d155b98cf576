package reconnect

// WithDefaults fills in a pace.
func WithDefaults(p Pace) Pace { return p.withDefaults() }
