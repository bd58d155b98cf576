package presence

// Held returns how much a store holds of what others make it hold.
func (m *Memory) Held() (rooms, participants int) { return len(m.rooms), m.aging.Len() }
