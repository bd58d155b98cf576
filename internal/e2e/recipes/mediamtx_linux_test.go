package recipes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

// TestMediaMTX: a WHIP publisher and a WHEP reader are sent to the same MediaMTX via a proxy, and again after its node
// crashes. make mediamtx runs this test, because no registry has MediaMTX.
func TestMediaMTX(t *testing.T) {
	exe := os.Getenv("MEDIAMTX")
	if exe == "" {
		t.Skip("MEDIAMTX names no program")
	}
	redis := redistest.Start(t)
	nodes := make(map[string]*node)
	for _, id := range []string{"a", "b", "c"} {
		nodes[id] = start(t, id, nodes, func(n *node) *exec.Cmd { return mediaMTX(t, exe, n) },
			"--redis", redis.URL(), "--capacity", "1000", "--report-load", "--pin-ttl", "2m")
	}
	agree(t, nodes)
	addr := fmt.Sprint("127.0.0.1:", redistest.FreePort(t))
	cmd := exec.Command(agenttest.Binary(t), "proxy", "--key-from", "path:1", "--rooms", "--listen", addr, "--agents", addrs(nodes))
	cmd.Env = agentproc.Environ()
	agenttest.Start(t, cmd)

	ctx, end := context.WithCancel(t.Context())
	p := &publisher{url: "http://" + addr + "/stage/whip"}
	r := &reader{url: "http://" + addr + "/stage/whep"}
	over := make(chan struct{}, 2)
	for _, run := range []func(context.Context){p.run, r.run} {
		go func() {
			run(ctx)
			over <- struct{}{}
		}()
	}
	defer func() {
		end()
		<-over
		<-over
	}()
	plays := func(since time.Time) {
		t.Helper()
		redistest.Until(t, "the reader to hear the publisher", func() bool { return r.last.Load() > since.UnixNano() })
	}
	plays(time.Now())
	var host string
	redistest.Eventually(t, "the path to be hosted beside its MediaMTX", func() error {
		for id, n := range nodes {
			stats, err := n.Stats(t.Context())
			if err != nil {
				return err
			}
			if stats.Rooms.Hosted == 1 {
				host = id
				return nil
			}
		}
		return errors.New("touch.sh has not touched it")
	})
	lost := time.Now()
	crash(t, nodes, host)
	redistest.Until(t, "the publisher to find another node", func() bool { return p.connected.Load() > lost.UnixNano() })
	plays(time.Unix(0, p.connected.Load()))
	t.Logf("crash of the node: publisher back after %v, reader after %v",
		time.Unix(0, p.connected.Load()).Sub(lost).Round(time.Millisecond), time.Unix(0, r.resumed.Load()).Sub(lost).Round(time.Millisecond))
}

// mediaMTX returns the command that runs MediaMTX with the files of deploy/mediamtx.
func mediaMTX(t *testing.T, exe string, n *node) *exec.Cmd {
	t.Helper()
	const deploy = "../testdata/deploy/mediamtx/"
	config, err := os.ReadFile(deploy + "mediamtx.yml")
	if err != nil {
		t.Fatal(err)
	}
	touch, err := filepath.Abs(deploy + "touch.sh")
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("203.0.113.7", "127.0.0.1", "/etc/mediamtx/touch.sh", touch).Replace(string(config)) +
		"webrtcAddress: " + n.addr + "\nwebrtcIPsFromInterfaces: no\nwebrtcLocalUDPAddress: 127.0.0.1:" + fmt.Sprint(redistest.FreePort(t)) +
		"\nrtsp: no\nrtmp: no\nhls: no\nsrt: no\nmoq: no\n"
	file := filepath.Join(t.TempDir(), "mediamtx.yml")
	if err := os.WriteFile(file, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, file)
	cmd.Env = append(agentproc.Environ(), "AGENT=http://"+n.Base)
	cmd.WaitDelay = time.Second // touch.sh continues for a while after a crash
	return cmd
}

// peer returns a connection that notices within a second if the server is lost, and a context that ends with the
// connection.
func peer(ctx context.Context) (*webrtc.PeerConnection, context.Context, error) {
	var s webrtc.SettingEngine
	s.SetIncludeLoopbackCandidate(true)
	s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	s.SetICETimeouts(500*time.Millisecond, 500*time.Millisecond, 100*time.Millisecond)
	engine := new(webrtc.MediaEngine)
	if err := engine.RegisterDefaultCodecs(); err != nil {
		return nil, nil, err
	}
	conn, err := webrtc.NewAPI(webrtc.WithSettingEngine(s), webrtc.WithMediaEngine(engine)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, nil, err
	}
	ctx, end := context.WithCancel(ctx)
	conn.OnICEConnectionStateChange(func(state webrtc.ICEConnectionState) {
		if state == webrtc.ICEConnectionStateDisconnected || state == webrtc.ICEConnectionStateFailed || state == webrtc.ICEConnectionStateClosed {
			end()
		}
	})
	return conn, ctx, nil
}

// offer sends the offer of a connection via WHIP or WHEP.
func offer(ctx context.Context, conn *webrtc.PeerConnection, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	o, err := conn.CreateOffer(nil)
	if err != nil {
		return err
	}
	gathered := webrtc.GatheringCompletePromise(conn)
	if err := conn.SetLocalDescription(o); err != nil {
		return err
	}
	select {
	case <-gathered:
	case <-ctx.Done():
		return ctx.Err()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(conn.LocalDescription().SDP))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/sdp")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	sdp, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s: %s", resp.Status, sdp)
	}
	return conn.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(sdp)})
}

// again runs f repeatedly until ctx ends.
func again(ctx context.Context, f func(context.Context) error) {
	for ctx.Err() == nil {
		_ = f(ctx) // it fails if the reader is too early, or the server is lost
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// publisher sends silence to a path via WHIP.
type publisher struct {
	url       string
	connected atomic.Int64 // when it last connected
}

func (p *publisher) run(ctx context.Context) { again(ctx, p.publish) }

func (p *publisher) publish(ctx context.Context) error {
	conn, alive, err := peer(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	track, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus}, "audio", "stage")
	if err != nil {
		return err
	}
	if _, err := conn.AddTransceiverFromTrack(track, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly}); err != nil {
		return err
	}
	conn.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		if state == webrtc.PeerConnectionStateConnected {
			p.connected.Store(time.Now().UnixNano())
		}
	})
	if err := offer(alive, conn, p.url); err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := track.WriteSample(media.Sample{Data: []byte{0xf8, 0xff, 0xfe}, Duration: 20 * time.Millisecond}); err != nil {
				return err
			}
		case <-alive.Done():
			return alive.Err()
		}
	}
}

// reader receives the audio of a path via WHEP.
type reader struct {
	url     string
	last    atomic.Int64 // when the last packet arrived
	resumed atomic.Int64 // when the first packet of this connection arrived
}

func (r *reader) run(ctx context.Context) { again(ctx, r.read) }

func (r *reader) read(ctx context.Context) error {
	conn, alive, err := peer(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.AddTransceiverFromKind(webrtc.RTPCodecTypeAudio,
		webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}); err != nil {
		return err
	}
	conn.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for first := true; ; first = false {
			if _, _, err := track.ReadRTP(); err != nil {
				return
			}
			r.last.Store(time.Now().UnixNano())
			if first {
				r.resumed.Store(time.Now().UnixNano())
			}
		}
	})
	if err := offer(alive, conn, r.url); err != nil {
		return err
	}
	<-alive.Done()
	return alive.Err()
}
