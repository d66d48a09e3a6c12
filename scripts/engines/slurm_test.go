package engines

import (
	"bytes"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"testbed/results/tooltest"
)

// Slurm on one machine: a controller, two nodes of one processor each, and munge, all in a directory,
// with ports of their own. A part may start 10 s after it was requeued.
var slurmConf = template.Must(template.New("slurm.conf").Parse(`ClusterName=testbed
SlurmctldHost={{.Host}}(127.0.0.1)
SlurmctldPort={{index .Ports 0}}
SlurmUser={{.User}}
SlurmdUser={{.User}}
AuthType=auth/munge
AuthInfo=socket={{.Dir}}/munge.socket,cred_expire=10
SlurmctldPidFile={{.Dir}}/slurmctld.pid
SlurmdPidFile={{.Dir}}/%n.pid
StateSaveLocation={{.Dir}}/state
SlurmdSpoolDir={{.Dir}}/%n
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdTimeout=0
KillWait=1
NodeName=n1 NodeHostname={{.Host}} NodeAddr=127.0.0.1 Port={{index .Ports 1}}
NodeName=n2 NodeHostname={{.Host}} NodeAddr=127.0.0.1 Port={{index .Ports 2}}
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE
`))

// freePort returns a TCP port of the loopback interface that no process listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// daemon starts a program in the foreground, and ends it with the test or with this process.
func daemon(t *testing.T, dir string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	c := exec.Command("sh", append([]string{"-c", `"$@" & read -r _; kill $!; wait $!`, "sh"}, args...)...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &out
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(stdin.Close(), c.Wait()); err != nil || t.Failed() {
			t.Logf("%s: %v\n%s", args[0], err, &out)
		}
	})
}

// startSlurm returns when both nodes are idle.
func startSlurm(r *recipe) {
	t := r.T
	t.Helper()
	tooltest.Need(t, "munged", "slurmctld", "slurmd", "sbatch")
	dir := t.TempDir()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	var conf bytes.Buffer
	if err := slurmConf.Execute(&conf, map[string]any{
		"Dir": dir, "Host": host, "User": me.Username, "Ports": []int{freePort(t), freePort(t), freePort(t)},
	}); err != nil {
		t.Fatal(err)
	}
	path, key := filepath.Join(dir, "slurm.conf"), make([]byte, 128)
	rand.Read(key)
	if err := errors.Join(os.WriteFile(path, conf.Bytes(), 0o644), os.WriteFile(filepath.Join(dir, "munge.key"), key, 0o600),
		os.Mkdir(filepath.Join(dir, "state"), 0o755), os.Mkdir(filepath.Join(dir, "n1"), 0o755), os.Mkdir(filepath.Join(dir, "n2"), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_CONF", path)
	munge := []string{"munged", "--foreground", "--force"}
	for _, f := range []string{"key-file", "socket", "pid-file", "seed-file", "log-file"} {
		munge = append(munge, "--"+f+"="+filepath.Join(dir, "munge."+strings.TrimSuffix(f, "-file")))
	}
	daemon(t, dir, munge...)
	r.await("socket of munged", func() bool { _, err := os.Stat(filepath.Join(dir, "munge.socket")); return err == nil })
	daemon(t, dir, "slurmctld", "-D")
	daemon(t, dir, "slurmd", "-D", "-N", "n1")
	daemon(t, dir, "slurmd", "-D", "-N", "n2")
	t.Cleanup(func() { // jobs of a test that failed
		if out, err := exec.Command("scancel", "--user", me.Username).CombinedOutput(); err != nil {
			t.Errorf("scancel: %v\n%s", err, out)
		}
		r.await("end of all jobs", func() bool { out, err := exec.Command("squeue", "-h").Output(); return err == nil && len(out) == 0 })
	})
	r.await("two idle nodes", func() bool {
		out, err := exec.CommandContext(t.Context(), "sinfo", "-h", "-N", "-o", "%N %T").Output()
		return err == nil && string(out) == "n1 idle\nn2 idle\n"
	})
}

// A job array on two nodes, of which one is drained while both execute parts. One of the parts is requeued,
// one is killed and started again by hand. Both go on, and the merged tables are those of one call.
func TestSlurm(t *testing.T) {
	needEngines(t)
	const repeats = 32
	r := follow(t, "Slurm", 100, repeats)
	startSlurm(&r)
	submit, merge, ok := strings.Cut(r.commands[0], "\n")
	if !ok || !strings.HasPrefix(merge, "testbed merge ") || len(r.commands) != 2 {
		t.Fatalf("commands %q", r.commands)
	}
	var out bytes.Buffer
	c := r.command(submit)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	r.begun(1)
	r.begun(2)
	jobs := slurmTasks(r)
	if on := []string{jobs["1"]["BatchHost"], jobs["2"]["BatchHost"]}; !slices.Equal(on, []string{"n1", "n2"}) && !slices.Equal(on, []string{"n2", "n1"}) {
		t.Fatalf("parts 1 and 2 are on %q", on)
	}
	r.run("scontrol update nodename=n2 state=drain reason=test")
	r.run("scontrol requeue " + jobs["1"]["JobId"])
	r.run("scancel --batch --signal=KILL " + jobs["2"]["JobId"])
	r.await("end of the parts", func() bool {
		jobs = slurmTasks(r)
		return jobs["1"]["JobState"] == "PENDING" && jobs["2"]["JobState"] == "FAILED"
	})
	requeued, killed := r.trials(1), r.trials(2)
	if err := c.Wait(); err == nil {
		t.Errorf("sbatch --wait reports success although a part was killed:\n%s", &out)
	}
	jobs = slurmTasks(r)
	for task, restarts := range map[string]string{"1": "1", "3": "0", "4": "0"} {
		if job := jobs[task]; job["JobState"] != "COMPLETED" || job["BatchHost"] != "n1" || job["Restarts"] != restarts {
			t.Errorf("part %s: expected completed on n1 after %s restarts: %v", task, restarts, job)
		}
	}
	r.run(r.commands[1])
	if job := slurmTasks(r)["2"]; job["JobState"] != "COMPLETED" || job["BatchHost"] != "n1" {
		t.Errorf("part 2 again: expected completed on n1: %v", job)
	}
	r.kept(1, requeued, 2*repeats/parts)
	r.kept(2, killed, 2*repeats/parts)
	r.run(merge)
	r.merged()
}

// slurmTasks returns the fields of the newest job of each task.
func slurmTasks(r recipe) map[string]map[string]string {
	r.Helper()
	tasks := map[string]map[string]string{}
	for line := range strings.Lines(r.run("scontrol show job --oneliner")) {
		job := map[string]string{}
		for field := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(field, "=")
			job[key] = value
		}
		if last := tasks[job["ArrayTaskId"]]; len(last["JobId"]) <= len(job["JobId"]) && last["JobId"] <= job["JobId"] {
			tasks[job["ArrayTaskId"]] = job
		}
	}
	return tasks
}
