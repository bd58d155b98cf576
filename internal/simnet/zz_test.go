package simnet_test
import ("testing";"testing/synctest";"time";"io";"fmt";"github.com/hashicorp/memberlist";"github.com/roost-cluster/roost/internal/simnet")
type del struct{b []byte}
func (d del) NodeMeta(int) []byte {return nil}
func (d del) NotifyMsg([]byte) {}
func (d del) GetBroadcasts(o, l int) [][]byte { if l<600+o {return nil}; return [][]byte{d.b} }
func (d del) LocalState(bool) []byte {return nil}
func (d del) MergeRemoteState([]byte, bool) {}
func TestZZ(t *testing.T){
 for _,c:=range []int{10,50,100,300} { 
 run := func(min int) time.Duration { s:=time.Now(); synctest.Test(t, func(t *testing.T) {
  t.Cleanup(linger)
  n := simnet.New(simnet.Config{Seed: 1, Delay: time.Millisecond, Jitter: 2 * time.Millisecond})
  ms := make([]member, c)
  for i := range ms {
	time.Sleep(20*time.Millisecond)
	tr := listenAt(t, n, fmt.Sprintf("10.0.%d.%d:7946", i/200, i%200+1))
	cfg := memberlist.DefaultLANConfig(); cfg.Name=fmt.Sprint("n",i); cfg.Transport=tr; cfg.LogOutput=io.Discard; cfg.EnableCompression=false; cfg.Delegate=del{make([]byte,600)}
	m,err := memberlist.Create(cfg); if err!=nil{t.Fatal(err)}
	ms[i]=member{m,tr}
	m.Join([]string{"10.0.0.1:7946"})
  }
  b:=n.Stats()
  time.Sleep(time.Duration(min)*time.Minute)
  a:=n.Stats()
  if min>0 {t.Log(c, float64(a.PacketsSent-b.PacketsSent)/60/float64(c), "pps", a)}
  shutdown(t, ms...)
 }); return time.Since(s) }
 w:=run(0); t.Log(c, run(1)-w, w)
 }
}
