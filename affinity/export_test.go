package affinity

import "time"

// Kill ends the resolver as kill -9 ends its process: without a word to the store.
func (r *Resolver) Kill() {
	r.run.once.Do(func() {})
	r.run.closed.Store(true)
	r.run.stop()
	r.run.wait.Wait()
	r.feeds.moves.close()
	r.feeds.pressures.Close()
	r.run.endLog()
}

// Changed is what a store calls.
func (r *Resolver) Changed(room string) { r.changed(room) }

// TakeLocks takes every lock of the resolver once.
func (r *Resolver) TakeLocks() {
	r.Stats() // host table and circuit breaker
	r.reserved.cancel(reservation{})
	r.liveness.reclaiming(time.Now())
	r.work.rooms.take(0)
	r.work.partitions.take(0)
	r.feeds.moves.resync()
}
