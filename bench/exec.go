package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"google.golang.org/grpc"

	"guestd.internal/client"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

const (
	trueProgram = "/bin/true"
	smallOutput = 2 << 10
)

// smallCommand writes smallOutput bytes.
var smallCommand = []string{"/usr/bin/head", "-c", fmt.Sprint(smallOutput), "/dev/zero"}

// measureExec is the time of one short command over a connection that is open, by
// each of the ways there are, against os/exec in this process.
func measureExec(ctx context.Context, b *bench) (results []result, err error) {
	err = b.withDaemon(ctx, func(d *daemon, c *client.Client) error {
		conn, err := client.Connect(d.target())
		if err != nil {
			return err
		}
		defer conn.Close()
		if results, err = b.shortCommands(ctx, c, conn); err != nil {
			return err
		}
		whole, err := b.wholeCommand(d)
		results = append(results, whole)
		return err
	})
	return results, err
}

func (b *bench) shortCommands(ctx context.Context, c *client.Client, conn *grpc.ClientConn) ([]result, error) {
	processes := guestdv1.NewProcessServiceClient(conn)
	warmUp := max(1, b.scale.execs/10)
	silent, err := oneAtATime(warmUp, b.scale.execs,
		timed(func() error { return c.Command(trueProgram).Run(ctx) }),
		timed(func() error { return exec.Command(trueProgram).Run() }),
		timed(func() error { return runUnary(ctx, processes, 0, trueProgram) }),
	)
	if err != nil {
		return nil, err
	}
	talking, err := oneAtATime(warmUp, b.scale.execs,
		timed(func() error {
			out, err := c.Command(smallCommand...).Output(ctx)
			return errors.Join(err, expectBytes(out))
		}),
		timed(func() error {
			out, err := exec.Command(smallCommand[0], smallCommand[1:]...).Output()
			return errors.Join(err, expectBytes(out))
		}),
		timed(func() error { return runUnary(ctx, processes, smallOutput, smallCommand...) }),
	)
	if err != nil {
		return nil, err
	}
	const floor = "os/exec"
	return []result{
		latency("Exec /bin/true", silent[0], floor, silent[1], atMost(1.4)),
		latency("Run /bin/true (unary)", silent[2], floor, silent[1], atMost(1.4)),
		latency("Exec with 2 KiB of output", talking[0], floor, talking[1], atMost(1.4)),
		latency("Run with 2 KiB of output (unary)", talking[2], floor, talking[1], atMost(1.4)),
	}, nil
}

// runUnary runs a command by one unary call.
func runUnary(ctx context.Context, processes guestdv1.ProcessServiceClient, output uint64, args ...string) error {
	values := make([][]byte, len(args))
	for i, arg := range args {
		values[i] = []byte(arg)
	}
	response, err := processes.Run(ctx, &guestdv1.RunRequest{Spec: &guestdv1.ProcessSpec{
		Command: &guestdv1.ProcessSpec_Arguments{Arguments: &guestdv1.Arguments{Values: values}}}})
	if err != nil {
		return err
	}
	if code := response.GetExit().GetExitCode(); code != 0 {
		return fmt.Errorf("%s exited with %d", args[0], code)
	}
	var total uint64
	for _, o := range response.GetOutputs() {
		total += o.GetTotalBytes()
	}
	if total != output {
		return fmt.Errorf("%s wrote %d bytes instead of %d", args[0], total, output)
	}
	return nil
}

func expectBytes(out []byte) error {
	if len(out) != smallOutput || !bytes.Equal(out, make([]byte, smallOutput)) {
		return fmt.Errorf("%d bytes of output, or others than the %d that were written", len(out), smallOutput)
	}
	return nil
}

// wholeCommand is what a person or script at the host waits for: guestctl from its
// start to its end.
func (b *bench) wholeCommand(d *daemon) (result, error) {
	environment := append(os.Environ(), "GUESTD_TARGET="+d.target())
	samples, err := interleave(1, b.scale.commands,
		timed(func() error {
			command := exec.Command(b.guestctl, "exec", "--", trueProgram)
			command.Env = environment
			return command.Run()
		}),
		timed(func() error { return exec.Command(trueProgram).Run() }),
	)
	if err != nil {
		return result{}, err
	}
	return latency("guestctl exec -- /bin/true", samples[0], "os/exec", samples[1], nil), nil
}
