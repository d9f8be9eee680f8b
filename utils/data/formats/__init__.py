"""More label formats, a file each; without this folder the core's own are left."""

from duet.utils.data.formats.cvat import CVAT
from duet.utils.data.formats.label_studio import LABEL_STUDIO
from duet.utils.data.formats.labelme import LABELME
from duet.utils.data.formats.openimages import OPENIMAGES

FORMATS = (LABELME, CVAT, LABEL_STUDIO, OPENIMAGES)
