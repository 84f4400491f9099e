"""The disk of a machine that boots by itself: Debian with GRUB, systemd, containerd, and no Setpoint.

Made once from Debian's packages and kept by the hash of what it was made of; machines start from copy-on-write files on
it. What changes from run to run (kubelet, credentials, images) is on a second disk that `parts` makes. Needs root and
loop devices.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.full.harness.images import cache_folder, debian_archives, ran

RELEASE = "bookworm"
"""Its containerd 1.6 is the oldest that Kubernetes 1.35 takes."""
PACKAGES = (
    "ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "dbus", "e2fsprogs", "ethtool",
    "grub-pc", "initramfs-tools", "iproute2", "iptables", "kmod", "linux-image-cloud-amd64", "mdadm", "mount",
    "nvme-cli", "procps", "qemu-guest-agent", "runc", "systemd-resolved", "systemd-sysv", "udev", "util-linux",
)  # fmt: skip
WITH_RDMA = (
    *(name for name in PACKAGES if name != "linux-image-cloud-amd64"),
    "ibverbs-providers", "ibverbs-utils", "linux-image-amd64", "pci.ids",
)  # fmt: skip
"""Packages of a disk for soft RoCE: the cloud's kernel has no rdma_rxe. That kernel is four times as large, so only the
tests that need it make this disk."""
LEAVES_OUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")
SIZE = 6 << 30
START = 1 << 20
"""Bytes before the only partition, where GRUB's first stages are."""

ARGUMENTS = "console=ttyS0 net.ifnames=0 no_timer_check panic=5"
"""Of the kernel. A busy computer emulates timers too unevenly for the kernel's check of them, which ends the boot; a
kernel that panics starts again, as those of servers do."""
GRUB = f"""\
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_CMDLINE_LINUX_DEFAULT=""
GRUB_CMDLINE_LINUX="{ARGUMENTS}"
GRUB_TERMINAL=console
GRUB_DISABLE_OS_PROBER=true
"""
FIRST_MENU = f"""\
set timeout=0
insmod part_msdos
insmod ext2
search --no-floppy --fs-uuid --set=root {{uuid}}
menuentry Debian {{{{
  linux /boot/vmlinuz-{{kernel}} root=UUID={{uuid}} ro {ARGUMENTS}
  initrd /boot/initrd.img-{{kernel}}
}}}}
"""
"""Until update-grub runs inside the machine: in a chroot it does not find the disk that the machine will have."""
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failSwapOn: false
# Under disk pressure it would delete images, and no registry could bring them back.
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 5s
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: /parts/ca.crt}}
authorization: {mode: AlwaysAllow}
"""
CONTAINERD = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
BRIDGE = """\
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
"""
IMPORT = """\
#!/bin/sh -e
# At the first boot; later ones find the images where containerd keeps them.
test ! -e /var/lib/images.done || exit 0
for archive in /parts/images/*.tar; do ctr -n k8s.io images import "$archive"; done
touch /var/lib/images.done
sync
"""
UNITS = {
    "parts.mount": """\
[Unit]
Description=What a run of the tests brings
[Mount]
What=/dev/disk/by-label/parts
Where=/parts
Type=ext4
Options=ro
[Install]
WantedBy=multi-user.target
""",
    "images.service": """\
[Unit]
Description=Container images, which no registry serves
After=containerd.service parts.mount
Requires=containerd.service parts.mount
Before=kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/import-images
[Install]
WantedBy=multi-user.target
""",
    "kubelet.service": """\
[Unit]
Description=kubelet
After=containerd.service parts.mount images.service network-online.target
Requires=parts.mount
[Service]
EnvironmentFile=/parts/node.env
ExecStart=/parts/bin/kubelet --config=/etc/kubelet.yaml --kubeconfig=/parts/kubelet.kubeconfig \\
  --hostname-override=${NODE_NAME}
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
""",
    "kube-proxy.service": """\
[Unit]
Description=kube-proxy
After=parts.mount network-online.target
Requires=parts.mount
[Service]
EnvironmentFile=/parts/node.env
ExecStart=/parts/bin/kube-proxy --kubeconfig=/parts/kube-proxy.kubeconfig --hostname-override=${NODE_NAME} \\
  --cluster-cidr=10.88.0.0/16
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
""",
}
FILES = {
    "etc/default/grub": GRUB,
    "etc/hostname": "node\n",
    "etc/kubelet.yaml": KUBELET,
    "etc/containerd/config.toml": CONTAINERD,
    "etc/cni/net.d/10-bridge.conflist": BRIDGE,
    "usr/local/sbin/import-images": IMPORT,
    "etc/systemd/network/eth0.network": "[Match]\nName=eth0\n[Network]\nDHCP=yes\n",
    **{f"etc/systemd/system/{name}": text for name, text in UNITS.items()},
}
ENABLED = ("systemd-networkd", "containerd", "qemu-guest-agent", *UNITS)


def disk(packages: Sequence[str] = PACKAGES) -> Path:
    """Return the file of a disk with these packages, raw, which nothing may write to; made on first use, in minutes."""
    held = repr((RELEASE, tuple(packages), LEAVES_OUT, SIZE, FIRST_MENU, sorted(FILES.items()), ENABLED))
    folder = cache_folder() / "node"
    made = folder / f"disk-{hashlib.sha256(held.encode()).hexdigest()[:16]}.img"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".disk.lock").open("w") as lock:  # of two processes one makes it, the other waits and finds it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            unfinished = made.with_suffix(".unfinished")
            _make(unfinished, packages)
            unfinished.rename(made)
    return made


def _make(image: Path, packages: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="setpoint-disk-") as folder, ExitStack() as stack:
        root = Path(folder, "root")
        archive = _packages(packages)
        with image.open("wb") as file:
            file.truncate(SIZE)
        ran("sh", "-c", 'printf "label: dos\\nstart=2048, type=83, bootable\\n" | sfdisk -q "$0"', str(image))
        whole = stack.enter_context(_loop(image))
        partition = stack.enter_context(_loop(image, START))
        ran("mkfs.ext4", "-q", "-L", "root", partition)
        root.mkdir()
        stack.enter_context(_mounted(partition, root))
        ran("tar", "-C", str(root), "-xf", str(archive))
        uuid = ran("blkid", "-s", "UUID", "-o", "value", partition)
        _fill(root, uuid)
        for source, kind in (("/dev", "bind"), ("proc", "proc"), ("sysfs", "sysfs")):
            target = root / {"/dev": "dev", "proc": "proc", "sysfs": "sys"}[source]
            stack.enter_context(_mounted(source, target, kind))
        ran(
            "chroot", str(root), "grub-install", "--target=i386-pc", "--boot-directory=/boot",
            "--modules=part_msdos ext2 biosdisk", "--force", whole,
        )  # fmt: skip
        ran("chroot", str(root), "systemctl", "enable", *ENABLED)


def _packages(packages: Sequence[str]) -> Path:
    """Return an archive of the packages' files, kept by itself: a change of settings installs no package again."""
    held = repr((RELEASE, tuple(packages), LEAVES_OUT))
    archive = cache_folder() / "node" / f"packages-{hashlib.sha256(held.encode()).hexdigest()[:16]}.tar"
    if not archive.exists():
        unfinished = archive.with_suffix(".unfinished.tar")
        ran(
            "mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}",
            *(f"--dpkgopt=path-exclude={path}" for path in LEAVES_OUT),
            RELEASE, str(unfinished), *debian_archives(RELEASE),
        )  # fmt: skip
        unfinished.rename(archive)
    return archive


def _fill(root: Path, uuid: str) -> None:
    kernel = next(path.name.removeprefix("vmlinuz-") for path in (root / "boot").glob("vmlinuz-*"))
    files = FILES | {
        "etc/fstab": f"UUID={uuid} / ext4 defaults 0 1\n",
        "boot/grub/grub.cfg": FIRST_MENU.format(uuid=uuid, kernel=kernel),
        "etc/machine-id": "",  # each machine makes its own
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "usr/local/sbin/import-images").chmod(0o755)


def parts(target: Path, files: Mapping[str, Path | str]) -> Path:
    """Make a disk of these files (a path to copy, or a text) that machines mount read-only at /parts."""
    with tempfile.TemporaryDirectory(prefix="setpoint-parts-", dir=target.parent) as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                path.write_text(content)
            else:
                shutil.copyfile(content, path)
                path.chmod(0o755)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        with target.open("wb") as file:
            file.truncate(size + size // 10 + (16 << 20))
        ran("mkfs.ext4", "-q", "-L", "parts", "-d", folder, str(target))
    return target


@contextmanager
def _loop(image: Path, offset: int = 0) -> Iterator[str]:
    device = ran("losetup", "--find", "--show", f"--offset={offset}", str(image))
    try:
        yield device
    finally:
        ran("losetup", "--detach", device)


@contextmanager
def _mounted(source: str, target: Path, kind: str = "") -> Iterator[None]:
    how = ["--bind"] if kind == "bind" else ["-t", kind] if kind else []
    ran("mount", *how, source, str(target))
    try:
        yield
    finally:
        ran("umount", str(target))


if __name__ == "__main__":
    os.umask(0o022)
    print(disk())
