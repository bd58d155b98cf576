package presence

// Held returns how many rooms and participants a store keeps in memory.
func (m *Memory) Held() (rooms, participants int) { return len(m.rooms), m.aging.Len() }
