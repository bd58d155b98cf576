package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

// These are the faults of processes.

// deaths end the process of n5. It is started again after some time.
func deaths() []fault {
	death := func(name string, end func(l *lab)) fault {
		return fault{
			name: name, faulty: 5, lasts: 10 * time.Second, holds: confirmedWithin(4 * time.Second),
			begin: func(l *lab) {
				end(l)
				<-l.nodes[5].process.Done()
			},
			end: func(l *lab) { l.start(5) },
		}
	}
	return []fault{
		death("kill -9 of n5", func(l *lab) { l.signal(syscall.SIGKILL, 5) }),
		death("n5 exits without a leave message", func(l *lab) { _ = l.nodes[5].process.Stdin.Close() }),
		death("n5 panics", func(l *lab) { l.signal(syscall.SIGSEGV, 5) }),
		death("n5 is killed: out of memory", func(l *lab) { l.exhaust(5) }),
	}
}

// restarts kill n5 and start it again.
func restarts() []fault {
	restart := func(l *lab, down time.Duration) {
		l.kill(5)
		time.Sleep(down)
		l.start(5)
	}
	return []fault{
		{
			name: "kill -9, restart at once", faulty: 5, lasts: 10 * time.Second, holds: atMost(2),
			begin: func(l *lab) { restart(l, 0) },
		},
		{
			name: "five kills and restarts", faulty: 5, lasts: 20 * time.Second, flapping: true, holds: atMost(8),
			begin: func(l *lab) {
				for range 5 {
					restart(l, time.Second)
					time.Sleep(3 * time.Second)
				}
			},
		},
	}
}

// pauses stop processes completely or almost.
func pauses() []fault {
	pause := func(name string, d time.Duration, faulty int, hosts ...int) fault {
		return fault{
			name: name, faulty: faulty, lasts: d, holds: still,
			begin: func(l *lab) { l.signal(syscall.SIGSTOP, hosts...) },
			end:   func(l *lab) { l.signal(syscall.SIGCONT, hosts...) },
		}
	}
	var group string
	return []fault{
		pause("n5 is stopped for 4 s", 4*time.Second, 5, 5),
		pause("all are stopped for 5 s", 5*time.Second, 0, 1, 2, 3, 4, 5),
		{
			name: "n5 has 1 % of a CPU", faulty: 5, lasts: time.Minute, holds: still,
			begin: func(l *lab) {
				l.nodes[5].hidden.Store(spared) // answers would take all its time
				group = l.group(5, "cpu", "cpu.cfs_quota_us=1000", "cpu.max=1000 100000")
			},
			end: func(l *lab) {
				l.ungroup(group)
				l.nodes[5].hidden.Store(shown)
			},
		},
	}
}

// settings restart n5 with a wrong setting.
func settings() []fault {
	wrong := func(name string, begin func(l *lab)) fault {
		return fault{
			name: name, faulty: 5, lasts: 40 * time.Second, holds: atMost(2),
			begin: func(l *lab) {
				l.kill(5)
				begin(l)
			},
			end: func(l *lab) {
				l.kill(5)
				l.start(5)
			},
		}
	}
	advertise := func(name string, host int) fault {
		f := wrong(name, func(l *lab) { l.start(5, "--advertise", l.gossip(host)) })
		right := f.end
		f.end = func(l *lab) {
			if says := "at its advertised address " + l.gossip(host); *exe == "" && !strings.Contains(l.nodes[5].process.Log.String(), says) {
				l.t.Errorf("the log of n5 does not contain %q:\n%s", says, l.nodes[5].process.Log)
			}
			right(l)
		}
		return f
	}
	return []fault{
		advertise("n5 advertises an address of nothing", 200),
		advertise("n5 advertises the address of n1", 1),
		wrong("the log of n5 is not read", func(l *lab) {
			// The pipe is full, and only the agent itself could read from it.
			l.startAfter(5,
				fmt.Sprintf(`mkfifo %[1]s; exec 2<>%[1]s; dd if=/dev/zero bs=4096 count=16 1>&2 2>/dev/null`, l.t.TempDir()+"/log"),
				"--log-level", "debug")
		}),
	}
}

// groups is where control groups are mounted.
const groups = "/sys/fs/cgroup"

// group moves the agent of a host into a new control group with a limit. The limit has a different name in each version
// of the kernel's interface. group returns the folder of the control group.
func (l *lab) group(i int, controller, limit1, limit2 string) string {
	l.t.Helper()
	parent, limit := groups+"/"+controller, limit1
	if _, err := os.Stat(groups + "/cgroup.controllers"); err == nil {
		l.must("echo +%s >%s/cgroup.subtree_control", controller, groups)
		parent, limit = groups, limit2
	}
	dir := fmt.Sprintf("%s/roost-%s-%d", parent, l.ns(i), os.Getpid())
	file, value, _ := strings.Cut(limit, "=")
	l.must("mkdir %[1]s; echo %[2]s >%[1]s/%[3]s; echo %[4]d >%[1]s/cgroup.procs", dir, value, file, l.nodes[i].process.PID())
	l.t.Cleanup(func() { l.ungroup(dir) })
	return dir
}

// ungroup moves the processes out of a control group, and removes the group.
func (l *lab) ungroup(dir string) {
	l.must("[ -d %[1]s ] || exit 0; while read -r pid; do echo $pid >%[1]s/../cgroup.procs; done <%[1]s/cgroup.procs; rmdir %[1]s", dir)
}

// exhaust uses up the memory of a group that contains the agent of a host. The kernel kills this agent first.
func (l *lab) exhaust(i int) {
	l.t.Helper()
	dir := l.group(i, "memory", "memory.limit_in_bytes=16M", "memory.max=16M")
	l.must("echo 1000 >/proc/%d/oom_score_adj", l.nodes[i].process.PID())
	hog := exec.Command("sh", "-ec", fmt.Sprintf("echo $$ >%s/cgroup.procs; exec dd if=/dev/zero of=/dev/null bs=200M count=1", dir))
	if err := hog.Start(); err != nil {
		l.t.Fatal(err)
	}
	select {
	case <-l.nodes[i].process.Done():
	case <-time.After(agenttest.Timeout):
		l.t.Fatalf("%s is not out of memory", l.ns(i))
	}
	_ = hog.Process.Kill()
	_ = hog.Wait()
}
